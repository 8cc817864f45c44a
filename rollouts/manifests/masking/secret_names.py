"""Names that indicate a secret: of options, environment variables, headers and fields.

`secret_patterns` and `masker` ask here. Only names decide, never values.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

# Environment variables with these prefixes hold settings, unless the rest of the name indicates a secret.
_HARMLESS_PREFIXES: Final = (
    *("CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "NVIDIA_", "NVSHMEM_", "ROCM_", "HIP_", "RCCL_", "UCX_", "FI_", "GLOO_"),
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "NUMEXPR_", "MPI_", "OMPI_", "PMIX_", "TORCH_", "PYTORCH_", "TRITON_"),
    *("TF_", "XLA_", "JAX_", "VLLM_", "SGLANG_", "TRTLLM_", "TLLM_", "DYN_", "RAY_", "GROVE_", "PYTHON", "LC_"),
)
_HARMLESS_NAMES: Final = frozenset(
    {
        *("PATH", "LD_LIBRARY_PATH", "HOME", "HOSTNAME", "LANG", "LANGUAGE", "TZ", "TERM", "SHELL", "TMPDIR", "DEBUG"),
        *("LOG_LEVEL", "LOGLEVEL", "LOG_FORMAT", "VERBOSE", "HOST", "PORT", "METRICS_PORT", "GOMAXPROCS", "GOMEMLIMIT"),
        *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "TOKENIZERS_PARALLELISM"),
        *("HF_HOME", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE"),
        *("MODEL", "MODEL_NAME", "MODEL_PATH", "MODEL_ID", "SERVED_MODEL_NAME"),
    }
)
_HARMLESS_HEADERS: Final = frozenset({"accept", "content-type", "host", "user-agent", "connection"})

# Words that indicate a secret anywhere in a name; `tokens` and `tokenizer` do not.
_SECRET_WORDS: Final = frozenset(
    {
        *("token", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "passcode", "pass", "pwd"),
        *("credential", "credentials", "creds", "auth", "authorization", "bearer", "apikey", "apikeys", "accesskey"),
        *("secretkey", "privatekey", "keytab", "cookie", "session", "signature", "dsn", "jwt", "oauth", "pin"),
        *("license", "licence", "webhook", "headers", "pat", "sas"),
    }
)
# Endings of longer words that indicate a secret: authtoken, dbpassword.
_SECRET_ENDINGS: Final = ("token", "password", "passwd", "passphrase", "secret", "apikey", "accesskey", "secretkey")
# Words that indicate a secret at the end of a name: an API key, but not a key-value cache.
_LAST_SECRET_WORDS: Final = frozenset({"key", "keys"})
# Fields of Kubernetes that have such a name but hold references or settings.
_REFERENCES: Final = frozenset(
    {
        *("secret", "secretName", "secretRef", "secretKeyRef", "configMapKeyRef", "imagePullSecrets", "secrets"),
        *("automountServiceAccountToken", "serviceAccountToken", "nodePublishSecretRef", "key", "topologyKey"),
        *("nodeStageSecretRef", "controllerPublishSecretRef", "matchLabelKeys", "sessionAffinity"),
        "tokenExpirationSeconds",
    }
)
# Manifests repeat the same names, so results are cached; longer texts are not names.
_MAX_CACHED_LENGTH: Final = 100
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def is_secret_name(name: str) -> bool:
    """Whether a name indicates a secret.

    >>> [is_secret_name(name) for name in ("--api-key", "HF_TOKEN", "dbPassword", "X-Auth")]
    [True, True, True, True]
    >>> [is_secret_name(name) for name in ("--max-tokens", "--tokenizer", "--kv-cache-dtype", "ssl-keyfile", "")]
    [False, False, False, False, False]
    """
    return _is_secret_name(name) if len(name) <= _MAX_CACHED_LENGTH else _has_secret_word(name)


def _has_secret_word(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    if not _SECRET_WORDS.isdisjoint(words) or any(word.endswith(_SECRET_ENDINGS) for word in words):
        return True
    return bool(words) and words[-1] in _LAST_SECRET_WORDS


_is_secret_name = lru_cache(maxsize=4096)(_has_secret_word)


def is_secret_field(name: str) -> bool:
    """Whether the name of a field indicates a secret and not a reference to one."""
    return name not in _REFERENCES and is_secret_name(name)


def is_harmless_variable(name: object) -> bool:
    """Whether an environment variable holds a setting, by its name."""
    if not isinstance(name, str) or is_secret_name(name):
        return False
    return name in _HARMLESS_NAMES or name.startswith(_HARMLESS_PREFIXES)


def is_harmless_header(name: object) -> bool:
    """Whether a header carries no credentials."""
    return isinstance(name, str) and name.lower() in _HARMLESS_HEADERS


NAME_VALUE_LISTS: Final[Mapping[str, Callable[[object], bool]]] = {
    "env": is_harmless_variable,
    "httpHeaders": is_harmless_header,
}
"""Fields with lists of names and values, and the test whether a value may be shown."""
