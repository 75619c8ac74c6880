"""Hooks around methods of a running vLLM.

A hook is a generator: it gets the arguments of the call, runs to its `yield` before the method and
goes on with the method's result. It may yield arguments, in place of an iterator that it has read.
The outermost of nested calls may be an event. A method that is called for each request or block of
a step gets two plain functions, one before the call and one after it, which cost less. No mistake
in a hook reaches vLLM: it is reported once, and all hooks of the engine are off from then on.
"""

from collections.abc import Callable, Generator
from typing import Any

from kvproof.model.errors import AdapterDrift

MISTAKES = (Exception, AdapterDrift)
"""What may go wrong in kvproof. AdapterDrift is no Exception."""

Hook = Callable[..., Generator[tuple[Any, ...] | None, Any, None]]
Before = Callable[[tuple[Any, ...], dict[str, Any]], None]
After = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
"""Functions that get the arguments of a call as they are; the second gets its result first."""


class Hooks:
    """The hooks of one engine. After each event `ended` is called with the name of its method and
    the exception that it raised, if any. What `ended` raises of the kinds `passed_on` is meant for
    vLLM. `failed` gets a mistake of kvproof, `by_hand` what was done to the engine that
    no event does, as by a test that builds a state. All hooks are off after either of them."""

    def __init__(
        self,
        ended: Callable[[str, Exception | None], None],
        failed: Callable[[BaseException], None],
        by_hand: Callable[[str], None],
        passed_on: tuple[type[Exception], ...] = (),
    ) -> None:
        self.ended = ended
        self.failed = failed
        self.by_hand = by_hand
        self.passed_on = passed_on
        self.depth = 0
        self.off = False

    def add(self, owner: Any, name: str, hook: Hook, *, event: bool = False) -> None:
        """Put a hook around a method of an object. A call of it may be an event, or it is always a
        part of one."""
        original = getattr(owner, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            if not self.depth and not event:
                self._by_hand(name)
            if self.off:
                return original(*args, **kwargs)
            running = self._begun(hook, args, kwargs)
            used = running[1] if running is not None else args
            self.depth += 1
            try:
                result = original(*used, **kwargs)
            except Exception as error:
                if event and self.depth == 1:
                    self.guarded(self.ended, name, error)
                raise
            finally:
                self.depth -= 1
            if running is not None:
                self.guarded(_finish, running[0], result)
            if event and not self.depth:
                self.guarded(self.ended, name, None)
            return result

        called.__wrapped__ = original  # type: ignore[attr-defined]
        setattr(owner, name, called)

    def add_short(self, owner: Any, name: str, before: Before | None, after: After) -> None:
        """Put two functions around a method of an object that is always a part of an event."""
        original = getattr(owner, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            if not self.depth:
                self._by_hand(name)
            if self.off:
                return original(*args, **kwargs)
            if before is not None:
                try:
                    before(args, kwargs)
                except MISTAKES as error:
                    self._fail(error)
            result = original(*args, **kwargs)
            if not self.off:
                try:
                    after(result, args, kwargs)
                except MISTAKES as error:
                    self._fail(error)
            return result

        called.__wrapped__ = original  # type: ignore[attr-defined]
        setattr(owner, name, called)

    def _by_hand(self, name: str) -> None:
        self.stop(f"{name} was called outside of an event")

    def stop(self, why: str) -> None:
        """Something was done by hand."""
        if not self.off:
            self.off = True
            self.by_hand(why)

    def _begun(
        self, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Generator[Any, Any, None], tuple[Any, ...]] | None:
        """A hook that has run to its `yield`, and the arguments for the method."""
        try:
            running = hook(*args, **kwargs)
            replaced = next(running)
        except MISTAKES as error:
            self._fail(error)
            return None
        return running, args if replaced is None else replaced

    def guarded(self, work: Callable[..., None], *args: Any) -> None:
        """Do something that is no business of vLLM."""
        if self.off:
            return
        try:
            work(*args)
        except self.passed_on:
            raise
        except MISTAKES as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.off = True
        self.failed(error)


def _finish(running: Generator[Any, Any, None], result: Any) -> None:
    try:
        running.send(result)
    except StopIteration:
        return
    running.close()
