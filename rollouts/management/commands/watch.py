"""`manage.py watch`: the watcher process. Listens to the configured cluster until it is told to stop."""

import signal
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from rollouts.cluster import Misconfigured
from rollouts.connections import connect_cluster, redis_client
from rollouts.watcher import Watcher


class Command(BaseCommand):
    """Listen to the cluster."""

    help = "Listen to the cluster and keep what the product knows of it current."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Run the watcher until SIGTERM or SIGINT."""
        try:
            cluster = connect_cluster()
        except Misconfigured as error:
            raise CommandError(str(error)) from error
        watcher = Watcher(settings.ENVIRONMENT.cluster, cluster, redis_client())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: watcher.stop())
        watcher.run()
