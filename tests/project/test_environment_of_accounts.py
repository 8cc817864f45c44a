"""The environment variables about accounts: parsed, or rejected with the name and a valid value."""

from ipaddress import ip_network

import pytest

from grove_ui.environment import ConfigurationError, Rate, parse_environment

OIDC = {"OIDC_ISSUER": "https://id.example", "OIDC_CLIENT_ID": "grove", "OIDC_CLIENT_SECRET": "s3cret-of-the-client"}


def test_without_variables_nothing_is_read_only_nobody_is_believed_and_rates_are_set() -> None:
    environment = parse_environment({})
    assert (environment.read_only, environment.trusted_proxies, environment.oidc) == (False, (), None)
    assert (environment.api_rate, environment.sign_in_rate) == (Rate(1200, 60), Rate(10, 60))
    assert environment.admin_token is None


@pytest.mark.parametrize(("text", "rate"), [("5/s", Rate(5, 1)), ("100/h", Rate(100, 3600)), ("off", None)])
def test_rates_are_a_number_and_a_time(text: str, rate: Rate | None) -> None:
    assert parse_environment({"API_RATE": text}).api_rate == rate


def test_proxies_are_addresses_and_networks() -> None:
    environment = parse_environment({"TRUSTED_PROXIES": "10.0.0.0/8, 192.0.2.1,fd00::/8"})
    assert environment.trusted_proxies == tuple(map(ip_network, ("10.0.0.0/8", "192.0.2.1/32", "fd00::/8")))


def test_a_provider_needs_three_variables_and_has_defaults_for_the_others() -> None:
    oidc = parse_environment({**OIDC, "OIDC_ROLES": "platform=admin,team=x=operator,*=viewer"}).oidc
    assert oidc is not None
    assert oidc.roles == {"platform": "admin", "team=x": "operator", "*": "viewer"}
    assert (oidc.groups_claim, oidc.username_claim, oidc.name) == ("groups", "preferred_username", "single sign-on")
    with pytest.raises(ConfigurationError, match="OIDC_ROLES contains 'cn=sre'"):
        parse_environment({**OIDC, "OIDC_ROLES": "cn=sre"})


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"GROVE_ADMIN_TOKEN": "short"}, "GROVE_ADMIN_TOKEN is invalid"),
        ({"GROVE_ADMIN_TOKEN": "with blanks in it and long enough"}, "no spaces"),
        ({"GROVE_ADMIN_TOKEN": "ü" * 30}, "GROVE_ADMIN_TOKEN is invalid"),
        ({"READ_ONLY": "maybe"}, "READ_ONLY is 'maybe'"),
        ({"API_RATE": "many"}, "API_RATE is 'many'"),
        ({"API_RATE": "0/min"}, "API_RATE is '0/min'"),
        ({"API_RATE": "5/day"}, "API_RATE is '5/day'"),
        ({"TRUSTED_PROXIES": "10.0.0.1/8"}, "TRUSTED_PROXIES contains '10.0.0.1/8'"),
        ({"TRUSTED_PROXIES": "proxy.example"}, "TRUSTED_PROXIES contains 'proxy.example'"),
        ({"OIDC_ISSUER": "https://id.example"}, "also set OIDC_CLIENT_ID and OIDC_CLIENT_SECRET"),
        ({**OIDC, "OIDC_ISSUER": "http://id.example"}, "set it to the https:// URL"),
        ({**OIDC, "OIDC_ISSUER": "id.example"}, "set it to the https:// URL"),
        ({**OIDC, "OIDC_ISSUER": "http://[x"}, "set it to the https:// URL"),
        ({**OIDC, "OIDC_ROLES": "sre=chief"}, "one of viewer, operator, admin"),
        ({**OIDC, "OIDC_ROLES": "=viewer"}, "pairs of a group"),
    ],
)
def test_what_cannot_be_used_is_named_with_the_way_out(variables: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse_environment(variables)
    assert words in str(refusal.value)


def test_no_secret_is_shown_by_mistake() -> None:
    secrets = {
        **OIDC,
        "GROVE_ADMIN_TOKEN": "s3cret-token-of-the-first",
        "GROVE_ADMIN_PASSWORD": "s3cret-password",
        "METRICS_TOKEN": "s3cret-metrics",
        "DATABASE_URL": "postgresql://u:s3cret@h/d",
        "REDIS_URL": "redis://:s3cret@h",
    }
    assert "s3cret" not in repr(parse_environment(secrets))
    with pytest.raises(ConfigurationError) as refusal:
        parse_environment({"GROVE_ADMIN_TOKEN": "s3cret short"})
    assert "s3cret" not in str(refusal.value)
