"""An import contract of our own: a package imports only Python's standard library.

The built-in contracts of the linter forbid packages by name; this one allows packages by name, so it also refuses
libraries that it does not know.
"""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class StandardLibraryOnlyContract(Contract):
    """The package imports only itself and the standard library."""

    package = fields.StringField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find every import that leaves the package for something other than the standard library."""
        package = str(self.package)
        modules = {package, *graph.find_descendants(package)}
        strangers = [
            f"{module} imports {imported}"
            for module in sorted(modules)
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if imported not in modules and imported.partition(".")[0] not in sys.stdlib_module_names
        ]
        return ContractCheck(kept=not strangers, metadata={"strangers": strangers})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import that is not allowed."""
        for line in check.metadata["strangers"]:
            output.print_error(line)
