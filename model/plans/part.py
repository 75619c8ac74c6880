"""What the parts of plans have in common."""

from msgspec import Struct


class PlanPart(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A plan, or a part of one. In a file, fields with their default value are left out, and an
    unknown field is an error."""
