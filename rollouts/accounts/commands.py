"""The list of all commands, and the reference to the workload that a command is given to.

A command has one name everywhere: it is the codename of its permission and the name in the audit, the documentation
and on pages. `permissions` decides who may give a command; `services` execute it.
"""

from enum import StrEnum
from typing import Final

from rollouts.manifests.workload_ref import WorkloadRef

__all__ = ["AUDITED_COMMANDS", "COMMANDS", "Command", "WorkloadRef"]


class Command(StrEnum):
    """A command that changes a cluster, an override or an account, with a label that completes "You may not …"."""

    label: str

    def __new__(cls, value: str, label: str) -> "Command":
        """Make a command from its name and its label."""
        command = str.__new__(cls, value)
        command._value_ = value
        command.label = label
        return command

    APPLY_WORKLOAD = "apply_workload", "apply a manifest"
    # Not sent by itself: it lets other commands add what the Pod Security level of a namespace forbids.
    APPLY_PRIVILEGED = "apply_privileged", "apply pods beyond the Pod Security level"
    SET_IMAGES = "set_images", "change images"
    SCALE_WORKLOAD = "scale_workload", "scale a workload"
    EDIT_STRATEGY = "edit_strategy", "edit an update strategy"
    RESTART_WORKLOAD = "restart_workload", "restart a workload"
    ROLL_BACK_WORKLOAD = "roll_back_workload", "roll a workload back"
    DELETE_OUTDATED_PODS = "delete_outdated_pods", "delete outdated pods"
    DELETE_ANY_PODS = "delete_any_pods", "delete pods by force"
    TAKE_OVER_WORKLOAD = "take_over_workload", "take a workload over from Grove's operator"
    DELETE_WORKLOAD = "delete_workload", "delete a workload"
    CREATE_OVERRIDE = "create_override", "create a strategy override"
    CHANGE_OVERRIDE = "change_override", "change a strategy override"
    END_OVERRIDE = "end_override", "end a strategy override"
    TEST_CLUSTER = "test_cluster", "test the connection to a cluster"
    EXPORT_AUDIT = "export_audit", "export the audit"
    CREATE_TOKEN = "create_token", "create an API token"
    REVOKE_TOKEN = "revoke_token", "revoke an API token"
    CHANGE_ACCOUNT = "change_account", "change accounts, roles and grants"
    CHANGE_PASSWORD = "change_password", "change your password"
    END_SESSIONS = "end_sessions", "end all sessions and tokens of an account"
    CHANGE_POD_SECURITY = "change_pod_security", "change Pod Security levels"
    SIGN_IN = "sign_in", "sign in"
    SIGN_OUT = "sign_out", "sign out"


COMMANDS: Final = {command.value: command for command in Command}
AUDITED_COMMANDS: Final = tuple(command for command in Command if command is not Command.APPLY_PRIVILEGED)
"""The commands that entries of the audit log have."""
