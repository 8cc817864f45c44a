"""The admin site, under /admin/, for the daily work of a platform team. A module for each subject.

It shows all tables, and changes only overrides, accounts, grants, tokens and Pod Security levels. A service or
`audited_admin` records each change; mirror, history and audit are read-only. `permissions.may_administer` decides who
may open the site; the usual permissions decide what an account may do there.
"""

from rollouts.admin import accounts, audit, clusters, grants, history, mirror, overrides, pod_security, tokens

__all__ = ["accounts", "audit", "clusters", "grants", "history", "mirror", "overrides", "pod_security", "tokens"]
