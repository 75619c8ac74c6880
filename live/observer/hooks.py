"""Hooks around methods of a running vLLM.

A hook is a generator: it gets the arguments of the call, runs to its `yield` before the method and
goes on with the method's result. It may yield other arguments, as for an iterator that it has read.
The outermost of nested calls may be an event. A method that a step calls for each request or block
gets two plain functions, one before the call and one after it, which cost less. No mistake in a
hook reaches vLLM: it is reported once, and all hooks of the engine are off from then on.
"""

import functools
import inspect
from collections.abc import Callable, Generator
from types import MethodType
from typing import Any

from kvproof.model.errors import AdapterDrift

MISTAKES = (Exception, AdapterDrift)
"""The exceptions of mistakes in kvproof. AdapterDrift is no Exception."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Hook = Callable[..., Generator[Arguments | None, Any, None]]
Before = Callable[[tuple[Any, ...], dict[str, Any]], None]
After = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
"""A function that gets the result of a call, and then its arguments as they are. `Before` gets the
arguments alone."""


class Hooked(functools.partial[Any]):
    """A method with a hook around it. A deep copy of its owner gets the method without the hook.
    `hooked` is the object that the owner has in place of its method."""

    owner: Any
    name: str
    inherited: Any
    hooked: Any

    def __reduce__(self) -> Any:
        return getattr, (self.owner, self.name)


class Short:
    """A bound method with functions around it, whose call costs less than that of `Hooked`. A deep
    copy of its owner gets an object that calls the method alone."""

    def __init__(self, owner: Any, name: str, inherited: Any, called: Any) -> None:
        self.owner, self.name, self.inherited = owner, name, inherited
        self.hooked = MethodType(called, self)

    def __reduce__(self) -> Any:
        return _Copied, (self.owner,)


class _Copied:
    """The object that a deep copy of the owner has in place of a `Short`."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __getattr__(self, name: str) -> Any:
        if name == "owner":
            raise AttributeError(name)
        return _of_class(self.owner, name)


class Hooks:
    """The hooks of one engine. Before each event they call `begins`, and after it `ended`, with the
    name of its method and the exception that it raised, if any. Exceptions of `ended` of the kinds
    `passed_on` go to vLLM. `failed` is called with an exception of kvproof's own, and `by_hand`
    with a change of the engine outside any event, as by a test that builds a state. After a call of
    either, all hooks are off."""

    def __init__(
        self,
        ended: Callable[[str, Exception | None], None],
        failed: Callable[[BaseException], None],
        by_hand: Callable[[str], None],
        passed_on: tuple[type[Exception], ...] = (),
        begins: Callable[[], None] = lambda: None,
    ) -> None:
        self.ended = ended
        self.failed = failed
        self.by_hand = by_hand
        self.passed_on = passed_on
        self.begins = begins
        self.added: list[Hooked | Short] = []
        self.depth = 0
        self.off = False

    def add(self, owner: Any, name: str, hook: Hook, *, event: bool = False) -> None:
        """Put a hook around a method of an object. A call of it may be an event, or it is always a
        part of one."""
        original, kind = getattr(owner, name), type(owner)
        inherited = None if name in vars(owner) else getattr(kind, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            if inherited is not None and getattr(kind, name, None) is not inherited:
                self.stop(f"{name} was replaced")
                return _of_class(owner, name)(*args, **kwargs)
            if not self.depth and not self.off:
                self._begins(name, event=event)
            if self.off:
                return original(*args, **kwargs)
            running = self._begun(hook, args, kwargs)
            if running is not None:
                args, kwargs = running[1]
            self.depth += 1
            try:
                result = original(*args, **kwargs)
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

        hooked = Hooked(called)
        functools.update_wrapper(hooked, original)
        hooked.owner, hooked.name, hooked.inherited = owner, name, inherited
        hooked.hooked = hooked
        setattr(owner, name, hooked)
        self.added.append(hooked)

    def add_short(self, owner: Any, name: str, before: Before | None, after: After) -> None:
        """Put functions around a method of an object that is always a part of an event. During an
        event, the method must not be replaced."""
        original, kind = getattr(owner, name), type(owner)
        inherited = None if name in vars(owner) else getattr(kind, name)

        def outside(*args: Any, **kwargs: Any) -> Any:
            if inherited is not None and getattr(kind, name, None) is not inherited:
                self.stop(f"{name} was replaced")
                return _of_class(owner, name)(*args, **kwargs)
            if not self.off:
                self._begins(name, event=False)
            return original(*args, **kwargs)

        def called(mine: Any, *args: Any, **kwargs: Any) -> Any:
            if mine.owner is not owner:
                return _of_class(mine.owner, name)(*args, **kwargs)
            if self.off or not self.depth:
                return outside(*args, **kwargs)
            try:
                if before is not None:
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

        short = Short(owner, name, inherited, functools.update_wrapper(called, original))
        setattr(owner, name, short.hooked)
        self.added.append(short)

    def forget(self, owner: Any) -> None:
        """Stop observing an object."""
        self.added = [each for each in self.added if each.owner is not owner]

    def _begins(self, name: str, *, event: bool) -> None:
        """Handle a call from outside: it begins an event, or it changes the engine by hand."""
        if not event:
            self.stop(f"{name} was called outside of an event")
        for each in self.added:
            owner, name, inherited = each.owner, each.name, each.inherited
            as_was = inherited is None or getattr(type(owner), name, None) is inherited
            if not as_was or (owner.__dict__.get(name) is not each.hooked and not _in_place(each)):
                self.stop(f"{name} was replaced")
        self.guarded(self.begins)

    def stop(self, why: str) -> None:
        """Switch the hooks off, because the engine was changed by hand."""
        if not self.off:
            self.off = True
            self.by_hand(why)

    def _begun(
        self, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Generator[Any, Any, None], Arguments] | None:
        """Start a hook up to its `yield`. Returns the hook, and the arguments for the method."""
        try:
            running = hook(*args, **kwargs)
            replaced = next(running)
        except MISTAKES as error:
            self._fail(error)
            return None
        return running, (args, kwargs) if replaced is None else replaced

    def guarded(self, work: Callable[..., None], *args: Any) -> None:
        """Run code of kvproof whose exceptions must not reach vLLM."""
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


def _of_class(owner: Any, name: str) -> Any:
    """A method as the class of its owner has it now."""
    found = inspect.getattr_static(type(owner), name)
    bind = getattr(type(found), "__get__", None)
    return found if bind is None else bind(found, owner, type(owner))


def _finish(running: Generator[Any, Any, None], result: Any) -> None:
    try:
        running.send(result)
    except StopIteration:
        return
    running.close()


def _in_place(each: Hooked | Short) -> bool:
    """Whether a hook is still called: its owner has it, or a wrapper around it."""
    found = vars(each.owner).get(each.name)
    while found is not None and found is not each.hooked:
        found = vars(found).get("__wrapped__") if hasattr(found, "__dict__") else None
    return found is not None
