"""The admin site, under /admin/: what a platform team looks after from day to day. A module for each subject.

Everything here reads the tables, and changes only what people decide: overrides, accounts, grants and Pod Security
levels. Each change goes through a service or is put on record by `audited_admin`; mirror, history and audit cannot be
changed at all. Whoever may enter is decided by `permissions.may_administer`, what they may do by the same permissions
as everywhere.
"""

from rollouts.admin import accounts, audit, clusters, grants, history, mirror, overrides, pod_security, tokens

__all__ = ["accounts", "audit", "clusters", "grants", "history", "mirror", "overrides", "pod_security", "tokens"]
