"""Hooks around methods of vLLM: the only code that puts something in place of a method of a running
vLLM, and reads the arguments of its calls.

A hook passes on whatever it is given, so that a vLLM whose calls have one more argument runs as it
would without the hook. What the hook itself needs it reads by the name that vLLM has for it.

The hooks of one engine (`Hooks`) know events. Such a hook is a generator: it gets the arguments of
the call, runs to its `yield` before the method and goes on with the method's result. It may yield
other arguments, as for an iterator that it has read. The outermost of nested calls may be an event.
A method that a step calls for each request or block gets two plain functions, one before the call
and one after it, which cost less. No mistake in a hook reaches vLLM: it is reported once, and all
hooks of the engine are off from then on.
"""

import functools
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from inspect import Parameter
from types import MethodType
from typing import Any

from kvproof.model.errors import AdapterDrift

MISTAKES = (Exception, AdapterDrift)
"""The exceptions of mistakes in kvproof. AdapterDrift is no Exception."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Hook = Callable[..., Generator[Arguments | None, Any, None]]
Before = Callable[[tuple[Any, ...], dict[str, Any]], object]
After = Callable[[Any, tuple[Any, ...], dict[str, Any]], object]
"""A function that gets the result of a call, and then its arguments as they are. `Before` gets the
arguments alone."""


class Given:
    """The arguments of calls of a bound method, each found by its parameter's name or position.

    Somebody may have wrapped the method in a function of `*args`, which hides the parameters.
    `first` are the method's first parameters, in vLLM's order, with which such a call is read."""

    def __init__(self, method: Callable[..., Any], *first: str) -> None:
        self.name, parameters = method.__qualname__, inspect.signature(method).parameters
        self.hidden = any(each.kind is each.VAR_POSITIONAL for each in parameters.values())
        self.places = {name: at for at, name in enumerate(first if self.hidden else parameters)}

    @classmethod
    def by_interface(cls, owner: Any, method: str, names: Sequence[str]) -> "Given":
        """Read calls of an object's method by the names of its interface: the most basic class that
        declares the method. Raises AdapterDrift where the interface has no such parameter."""
        kinds = reversed(type(owner).__mro__)
        declared = next(vars(kind)[method] for kind in kinds if method in vars(kind))
        given = cls(declared.__get__(owner))
        for name in names:
            if name not in given.places:
                raise AdapterDrift(
                    f"{given.name} of this vLLM has no parameter {name!r}", given.name
                )
        return given

    def get(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], name: str, *otherwise: Any
    ) -> Any:
        """An argument of a call; if the call may leave it out, what it is `otherwise`. Raises
        AdapterDrift where nobody can say whether it was given, or it must be and is not."""
        if name in kwargs:
            return kwargs[name]
        if self.hidden and len(args) > len(self.places):
            why = f"{self.name} hides its parameters, and is called with {len(args)} of them"
            raise AdapterDrift(why, self.name)
        at = self.places.get(name, len(args))
        if at < len(args):
            return args[at]
        if not otherwise:
            raise AdapterDrift(f"This vLLM calls {self.name} without {name!r}", self.name)
        return otherwise[0]


def around(
    owner: Any, name: str, before: Before = lambda *_: None, after: After = lambda *_: None
) -> None:
    """Call a function before each call of a method of an object or a class, and one after it."""
    call = getattr(owner, name)

    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        before(args, kwargs)
        result = call(*args, **kwargs)
        after(result, args, kwargs)
        return result

    setattr(owner, name, called)


def hooked(
    owner: Any,
    method: str,
    *names: str,
    before: Callable[..., object] = lambda *_: None,
    after: Callable[..., object] = lambda *_: None,
) -> None:
    """Call a function before each call of an object's method, with these arguments of the call, and
    one after it, with its result and then the arguments. Raises AdapterDrift as `Given` does."""
    get = Given.by_interface(owner, method, names).get
    around(
        owner,
        method,
        lambda args, kwargs: before(*(get(args, kwargs, name) for name in names)),
        lambda result, *given: after(result, *(get(*given, name) for name in names)),
    )


class Hooked:
    """A method of an object, which the object has in place of its own. A deep copy of the object
    gets one that calls the method alone."""

    def __init__(self, owner: Any, name: str, called: Callable[..., Any]) -> None:
        self.owner, self.name = owner, name
        self.original, kind = getattr(owner, name), type(owner)
        self.inherited = None if name in vars(owner) else getattr(kind, name)
        functools.update_wrapper(called, self.original)
        own = Parameter("mine", Parameter.POSITIONAL_ONLY)
        signature = inspect.signature(self.original)
        vars(called)["__signature__"] = signature.replace(
            parameters=[own, *signature.parameters.values()]
        )
        self.put = MethodType(called, self)
        setattr(owner, name, self.put)

    def __reduce__(self) -> Any:
        return _Copied, (self.owner,)

    def of_class_is_replaced(self) -> bool:
        """Whether the class of the owner has another method of this name now."""
        kind = type(self.owner)
        return self.inherited is not None and getattr(kind, self.name, None) is not self.inherited

    def is_called(self) -> bool:
        """Whether the owner still has the hook, or a wrapper around it."""
        found = self.owner.__dict__.get(self.name)
        while found is not None and found is not self.put:
            found = vars(found).get("__wrapped__") if hasattr(found, "__dict__") else None
        return found is not None


class _Copied:
    """The object that a deep copy of an owner has in place of a `Hooked`."""

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
        self.added: list[Hooked] = []
        self.depth = 0
        self.off = False

    def add(self, owner: Any, name: str, hook: Hook, *, event: bool = False) -> None:
        """Put a hook around a method of an object. A call of it may be an event, or it is always a
        part of one."""

        def called(mine: Any, *args: Any, **kwargs: Any) -> Any:
            if mine is not hooked or self.off or not self.depth:
                method = self._outside(mine, hooked, event=event)
                if method is not None:
                    return method(*args, **kwargs)
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

        hooked = Hooked(owner, name, called)
        original = hooked.original
        self.added.append(hooked)

    def add_short(self, owner: Any, name: str, before: Before | None, after: After) -> None:
        """Put functions around a method of an object that is always a part of an event. During an
        event, the method must not be replaced."""

        def called(mine: Any, *args: Any, **kwargs: Any) -> Any:
            if mine is not hooked or self.off or not self.depth:
                return self._outside(mine, hooked)(*args, **kwargs)
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

        hooked = Hooked(owner, name, called)
        original = hooked.original
        self.added.append(hooked)

    def _outside(self, mine: Any, hooked: Hooked, *, event: bool = False) -> Any:
        """Begin an event with a call that is inside no other one, and return None. Where it begins
        none, return what is to be called without the hook: the method, or what has taken its place
        in the class."""
        if mine is not hooked:
            return _of_class(mine.owner, hooked.name)
        if hooked.of_class_is_replaced():
            self.stop(f"{hooked.name} was replaced")
            return _of_class(hooked.owner, hooked.name)
        if not self.off:
            self._begins(hooked.name, event=event)
        return hooked.original if self.off else None

    def forget(self, owner: Any) -> None:
        """Stop observing an object."""
        self.added = [each for each in self.added if each.owner is not owner]

    def _begins(self, name: str, *, event: bool) -> None:
        """Handle a call from outside: it begins an event, or it changes the engine by hand."""
        if not event:
            self.stop(f"{name} was called outside of an event")
        for each in self.added:
            if each.of_class_is_replaced() or not each.is_called():
                self.stop(f"{each.name} was replaced")
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
