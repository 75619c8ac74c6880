"""Whether this vLLM has the names that the kit replaces for a connector."""

from kvproof.connectors.device.replaced import gone
from kvproof.connectors.shipped import SHIPPED
from kvproof.connectors.subject import TestedConnector
from kvproof.model.errors import AdapterDrift


def require_replaced(subject: TestedConnector) -> None:
    """Raise AdapterDrift where this vLLM lacks a name that the kit replaces for this connector."""
    for each in gone():
        module = each.place.partition(":")[0]
        if _concerns(module, subject):
            raise AdapterDrift(f"This vLLM has no {each.place} ({each.why})", each.place)


def _concerns(module: str, subject: TestedConnector) -> bool:
    """Whether a module of vLLM is code of this connector, or is not the code of any one connector
    in the table."""
    file = f"{module.removeprefix('vllm.').replace('.', '/')}.py/"
    near = {name: _near(file, each.home) for name, each in SHIPPED.items()}
    nearest = max(near.values())
    owners = [SHIPPED[name].subject for name in near if near[name] == nearest]
    return not nearest or any(_parts(each) <= _parts(subject) for each in owners)


def _near(file: str, home: tuple[str, ...]) -> int:
    """The length of the most specific path of a connector's code that contains this file; 0 for
    none."""
    return max((len(each) for each in home if file.startswith(f"{each}/")), default=0)


def _parts(subject: TestedConnector) -> set[str]:
    """The classes of a connector and of the connectors inside it, and the kinds of its tiers."""
    inside = [each["kv_connector_extra_config"] for each in subject.extra.get("connectors", ())]
    tiers = (
        each for extra in (subject.extra, *inside) for each in extra.get("secondary_tiers", ())
    )
    return {*subject.classes, *(each["type"] for each in tiers)}
