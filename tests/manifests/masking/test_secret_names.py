"""Names of variables, options and fields whose values are hidden."""

import pytest

from rollouts.manifests.masking import is_secret_name


@pytest.mark.parametrize(
    "name", ["--api-key", "HF_TOKEN", "dbPassword", "X-Auth", "accessKey", "AWS_SECRET_ACCESS_KEY", "authtoken"]
)
def test_names_that_speak_of_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["--max-tokens", "--tokenizer", "kv-cache", "ssl-keyfile", "monkey", "keyboard", ""])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)
