"""Open folders: a file in one is a component, and its name is the component's kind. No registry, no decorator."""

import importlib
import pkgutil
from types import ModuleType

from nlq.core.errors import NlqError, nearest


def kinds(package: str) -> list[str]:
    """The component kinds in an open folder such as "nlq.models.projections", without importing them."""
    folder = importlib.import_module(package).__path__
    return sorted(m.name for m in pkgutil.iter_modules(folder) if not m.name.startswith("_"))


def load(package: str, kind: str, what: str = "component") -> ModuleType:
    """The module of one component. Raises NlqError, which calls it `what`, with the nearest kind when there is none."""
    if kind not in kinds(package):
        raise NlqError(f'no {what} "{kind}"; {nearest(kind, kinds(package))}')
    return importlib.import_module(f"{package}.{kind}")
