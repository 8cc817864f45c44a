"""Manifests in which a secret is planted, and masking as an account sees it that may apply them."""

from typing import Any

from rollouts.manifests import masking
from rollouts.manifests.masking import PUBLIC_READER, RECORD_READER, Reader, make_workload_reader
from rollouts.manifests.strict_yaml import MAX_BODY_BYTES

SECRET = "s3cr3t-Zx9"
WORKLOAD = "east/team-a/chat"
READERS = {"who may apply": make_workload_reader(WORKLOAD), "anybody": PUBLIC_READER, "the audit": RECORD_READER}


def mask_manifest(obj: Any, reader: Reader = READERS["who may apply"]) -> Any:
    """Return a manifest as shown to an account that may apply it."""
    return masking.mask_manifest(obj, reader)


def unmask_manifest(obj: Any, live: Any) -> Any:
    """Return a manifest that was sent back, with its hidden values restored."""
    return masking.unmask_manifest(obj, live, WORKLOAD, MAX_BODY_BYTES)


def container(**fields: Any) -> dict[str, Any]:
    """Return a manifest with one container."""
    return {"spec": {"podSpec": {"containers": [{"name": "main", **fields}]}}}


PLANTED = {
    "env": container(env=[{"name": "GREETING", "value": SECRET}]),
    "env with a telling name": container(env=[{"name": "HF_TOKEN", "value": SECRET}]),
    "env with a harmless beginning": container(env=[{"name": "NCCL_PASSWORD", "value": SECRET}]),
    "env whose value is a URL": container(env=[{"name": "VLLM_HOST", "value": f"http://me:{SECRET}@host/"}]),
    "env of an init container": {"initContainers": [{"env": [{"name": "X", "value": SECRET}]}]},
    "env without a name": container(env=[{"value": SECRET}]),
    "env that is a text": container(env=[SECRET]),
    "argument with a sign": container(args=[f"--api-key={SECRET}"]),
    "argument after an option": container(args=["--token", SECRET]),
    "argument after a short option": container(args=["--hf-token", SECRET, "--port", "80"]),
    "user with a password": container(args=[f"--user=robot:{SECRET}"]),
    "user with a password, apart": container(command=["curl", "-u", f"robot:{SECRET}", "http://x"]),
    "URL in an argument": container(args=[f"--db=postgres://me:{SECRET}@db:5432/x"]),
    "URL with a password that holds an @": container(args=[f"--db=postgres://me:p@{SECRET}@db:5432/x"]),
    "argument with what a shell would read": container(args=[f"--password=a,b;c&'{SECRET}|"]),
    "argument with blanks": container(args=[f"--password=a b {SECRET}"]),
    "argument with an open quote": container(args=[f'--secret="{SECRET}']),
    "assignment with a comma": container(args=["--set", f"auth.token=a,{SECRET}"]),
    "argument by a name in one word": container(args=[f"--authtoken={SECRET}", "--dbpassword", SECRET]),
    "header in an argument": container(args=[f"--header=Authorization: Token {SECRET}"]),
    "cookie in a script": container(command=["sh", "-c", f"curl -H 'Cookie: a=b; c={SECRET}' http://x"]),
    "script": container(command=["sh", "-c", f"export API_TOKEN={SECRET} && serve"]),
    "option in a script": container(command=["sh", "-c", f"serve --password {SECRET} --port 80"]),
    "quoted in a script": container(command=["sh", "-c", f"serve --secret '{SECRET} and more'"]),
    "JSON in an argument": container(args=[f'--config={{"password": "{SECRET}"}}']),
    "header in a script": container(command=["sh", "-c", f"curl -H 'Authorization: Bearer {SECRET}' http://x"]),
    "header of a probe": container(
        livenessProbe={"httpGet": {"httpHeaders": [{"name": "X-Anything", "value": SECRET}]}}
    ),
    "command of a hook": container(lifecycle={"preStop": {"exec": {"command": ["stop", f"--token={SECRET}"]}}}),
    "attributes of a volume": {"volumes": [{"csi": {"volumeAttributes": {"secretKey": SECRET}}}]},
    "options of a volume": {"volumes": [{"flexVolume": {"options": {"password": SECRET}}}]},
    "what hangs below a telling name": {"credentials": {"user": "me", "value": [SECRET]}},
    "annotation with a telling name": {"metadata": {"annotations": {"example.com/token": SECRET}}},
    "annotation with a copy": {
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": f'{{"a": "{SECRET}"}}'}}
    },
    "annotation that holds an object": {"annotations": {"example.com/x": f'{{"env": [{{"value": "{SECRET}"}}]}}'}},
    "token by its form": container(args=["hf_abcdefghijklmnop" + SECRET.replace("-", "")]),
    "signed token": container(args=[f"eyJhbGciOiJI.eyJzdWIiOiIx.{SECRET}"]),
    "private key": container(args=[f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----"]),
    "user of an address without a scheme": container(args=[f"//me:{SECRET}@models.example.com/v1"]),
    "user of a registry": container(args=["pull", f"robot:{SECRET}@registry.example.com/team/chat:v1"]),
    "user of a registry in an image": container(image=f"robot:{SECRET}@registry.example.com:5000/chat"),
    "password after -p": container(command=["client", "-p", SECRET]),
    "password after -a": container(args=["-h", "cache", "-a", SECRET]),
    "password joined to -p": container(command=["mysql", f"-p{SECRET}"]),
    "password joined to -p, a word": container(command=["/usr/bin/mysqldump", f"-p{SECRET.lower()}"]),
    "password joined to -p of anything": container(args=[f"-pA{SECRET}"]),
    "password of sshpass": container(command=["sh", "-c", f"sshpass -p {SECRET} ssh host"]),
    "password of sshpass, quoted": container(command=["sh", "-c", f"sleep 1; sshpass -p '{SECRET} x' ssh host"]),
    "password of a client in a script": container(command=["bash", "-c", f"redis-cli -h c -a {SECRET} ping | cat"]),
    "joined password in a script": container(command=["bash", "-c", f"a && mysql -u root -p{SECRET} db"]),
    "exported in a script": container(command=["sh", "-c", f"export MODE=fast GREETING={SECRET}; serve"]),
    "exported in quotes": container(command=["sh", "-c", f'export GREETING="a; {SECRET}"\nserve']),
    "declared in a script": container(command=["bash", "-c", f"declare -x GREETING={SECRET}; serve"]),
    "prose in an annotation": {"metadata": {"annotations": {"example.com/note": f"the password is {SECRET}, ask ana"}}},
    "more prose in an annotation": {"annotations": {"note": f"Old API key was '{SECRET}'."}},
    "condition that quotes it": {"status": {"conditions": [{"message": f"bad value TOKEN={SECRET} given"}]}},
}
