"""The settings of the product, with a feed that does not let a test wait for minutes."""

from grove_ui.settings import *  # noqa: F403

FEED_HEARTBEAT_SECONDS = 0.3
FEED_RECHECK_SECONDS = 0.2
