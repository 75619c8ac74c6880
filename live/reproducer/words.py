"""What a scheduler chose in a step, as a sentence."""

from kvproof.model.events import Admit, Choice, Compute, FinishLoad, Preempt, Schedule


def chosen(event: Schedule, names_engine: bool) -> str:
    """The choices of a step, in words."""
    who = event.engine if names_engine else "The scheduler"
    parts = [_choice_in_words(choice) for choice in event.chose or ()]
    return f"{who}: {'; '.join(parts) or 'nothing is scheduled'}."


def _choice_in_words(choice: Choice) -> str:
    name = choice.request
    if isinstance(choice, Admit):
        hit = f", {choice.local_hit} tokens hit" if choice.local_hit else ""
        external = f", {choice.external} to load" if choice.external else ""
        return f"{name} is admitted{hit}{external}"
    if isinstance(choice, FinishLoad):
        return f"the load of {name} is complete"
    if isinstance(choice, Compute):
        return f"{name} computes {choice.tokens}"
    if isinstance(choice, Preempt):
        why = f" for {choice.needy}" if choice.needy else ""
        return f"{name} is preempted{why}"
    return f"{name} frees blocks and does not fit"
