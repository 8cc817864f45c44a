"""A small OpenID Connect provider, as a process of its own: it signs tokens, rotates its keys and checks PKCE.

It signs in everyone at once, as the configured person. Tests configure it by POST /control with JSON: `person`
(claims), `faults` (ways to misbehave, see `_sign`), `rotate` (another key from now on).
"""

import base64
import contextlib
import hashlib
import json
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey

CLIENT_ID, CLIENT_SECRET = "grove-ui", "the secret of the client"
ROOT = Path(__file__).parents[2]


class Provider:
    """A running provider, for a test."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    def tell(self, **words: Any) -> None:
        """Configure who signs in, or a fault."""
        request = urllib.request.Request(f"{self.issuer}/control", json.dumps(words).encode(), method="POST")
        urllib.request.urlopen(request, timeout=30).close()

    def visit(self, url: str) -> str:
        """Request an address of the provider and return where it redirects the browser."""

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_args: Any) -> None:
                return None

        try:
            urllib.request.build_opener(Stay).open(url, timeout=30)
        except urllib.error.HTTPError as answer:
            return str(answer.headers["Location"])
        raise AssertionError("the provider does not send the browser back")


@contextlib.contextmanager
def running_provider() -> Iterator[Provider]:
    """Run a provider on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.web.oidc_provider"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield Provider(f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.kill()
        process.wait()


# --- In its own process -----------------------------------------------------------------------------------------------


class _State:
    def __init__(self) -> None:
        self.issuer = ""
        self.person: dict[str, Any] = {"sub": "1"}
        self.faults: set[str] = set()
        self.keys: list[RSAKey] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: set[str] = set()
        self.rotate()

    def rotate(self) -> None:
        self.keys = [RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig"})]


STATE = _State()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, urlsplit(self.path).query
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        match path:
            case "/.well-known/openid-configuration":
                self._answer(_description())
            case "/keys":
                self._answer(KeySet(list(STATE.keys)).as_dict(private=False))
            case "/authorize":
                self._authorize(asked)
            case "/userinfo":
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                known = token in STATE.tokens
                self._answer(_userinfo() if known else {"error": "invalid_token"}, 200 if known else 401)
            case _:
                self._answer({"error": "not_found"}, 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        if self.path == "/control":
            self._control(json.loads(body))
        elif self.path == "/token":
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._answer(*self._exchange(form))
        else:
            self._answer({"error": "not_found"}, 404)

    def _control(self, words: dict[str, Any]) -> None:
        STATE.person = words.get("person", STATE.person)
        STATE.faults = set(words.get("faults", ()))
        if words.get("rotate"):
            STATE.rotate()
        self._answer({})

    def _authorize(self, asked: dict[str, str]) -> None:
        answer = {"state": asked.get("state", "")}
        if "denies" in STATE.faults:
            answer["error"] = "access_denied"
        elif asked.get("client_id") != CLIENT_ID or asked.get("code_challenge_method") != "S256":
            answer["error"] = "invalid_request"
        else:
            answer["code"] = secrets.token_urlsafe()
            STATE.codes[answer["code"]] = asked
        self.send_response(302)
        self.send_header("Location", f"{asked['redirect_uri']}?{urlencode(answer)}")
        self.end_headers()

    def _exchange(self, form: dict[str, str]) -> tuple[dict[str, Any], int]:
        known = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET.replace(' ', '+')}".encode()).decode()
        plain = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if self.headers.get("Authorization", "").removeprefix("Basic ") not in (known, plain):
            return {"error": "invalid_client"}, 401
        asked = STATE.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != form.get("redirect_uri"):
            return {"error": "invalid_grant"}, 400
        access = secrets.token_urlsafe()
        STATE.tokens.add(access)
        answer = {"access_token": access, "token_type": "Bearer", "expires_in": 60}
        if "no-id-token" not in STATE.faults:
            answer["id_token"] = _sign(asked)
        return answer, 200

    def _answer(self, body: Any, status: int = 200) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_args: Any) -> None:
        pass


def _description() -> dict[str, Any]:
    issuer = "https://somebody-else.example" if "other-description" in STATE.faults else STATE.issuer
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{STATE.issuer}/authorize",
        "token_endpoint": f"{STATE.issuer}/token",
        "jwks_uri": f"{STATE.issuer}/keys",
        "userinfo_endpoint": f"{STATE.issuer}/userinfo",
        "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic"],
    }


def _userinfo() -> dict[str, Any]:
    person = dict(STATE.person)
    return {**person, "sub": "somebody else"} if "other-userinfo" in STATE.faults else person


def _sign(asked: dict[str, str]) -> str:
    now = int(time.time())
    claims = {
        **STATE.person,
        "iss": STATE.issuer,
        "aud": CLIENT_ID,
        "iat": now,
        "exp": now + 60,
        "nonce": asked.get("nonce"),
    }
    if "short-token" in STATE.faults:
        claims.pop("groups", None)
    if "other-issuer" in STATE.faults:
        claims["iss"] = "https://somebody-else.example"
    if "other-audience" in STATE.faults:
        claims |= {"aud": ["another-client"], "azp": CLIENT_ID}
    if "other-nonce" in STATE.faults:
        claims["nonce"] = "another"
    if "no-nonce" in STATE.faults:
        del claims["nonce"]
    if "expired" in STATE.faults:
        claims |= {"iat": now - 7200, "exp": now - 3600}
    return _seal(claims)


def _seal(claims: dict[str, Any]) -> str:
    key = STATE.keys[0]
    header = {"alg": "RS256", "kid": key.kid}
    if "unsigned" in STATE.faults:
        parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
        return ".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), ""])
    if "signed-with-our-secret" in STATE.faults:
        return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(CLIENT_SECRET))
    if "other-key" in STATE.faults:
        return jwt.encode(header, claims, RSAKey.generate_key(2048, {"kid": str(key.kid)}))
    return jwt.encode(header, claims, key)


def _main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    STATE.issuer = f"http://127.0.0.1:{server.server_port}"
    print(server.server_port, flush=True)  # noqa: T201 (how the test learns the port)
    server.serve_forever()


if __name__ == "__main__":
    _main()
