"""Names equal those of Grove."""

from rollouts.engine.model import names


def test_names_of_a_replica() -> None:
    assert names.service_name("my", 0) == "my-0"
    assert names.base_gang_name("my", 0) == "my-0"
    assert names.clique_name("my", 0, "c") == "my-0-c"
    assert names.group_name("my", 0, "sg") == "my-0-sg"
    assert names.group_clique_name("my-0-sg", 1, "c") == "my-0-sg-1-c"
    assert names.pod_hostname("my-0-sg-1-c", 2) == "my-0-sg-1-c-2"


def test_scaled_gangs_are_counted_from_the_first_replica_beyond_the_minimum() -> None:
    assert names.scaled_gang_name("my-0-sg", 3, min_available=2) == "my-0-sg-1"
    assert names.scaled_gang_name("my-0-sg", 2, min_available=2) == "my-0-sg-0"
