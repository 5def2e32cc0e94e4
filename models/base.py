"""Base class of every immutable value that is read from or written to a file."""

from __future__ import annotations

import hashlib
import json
from functools import cache, cached_property
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

canonical_string: Final = json.encoder.encode_basestring
"""Canonical JSON of a string, as `canonical_json` writes it."""

_encoder: Final = json.JSONEncoder(
    check_circular=False, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def fast_encoder(make: Callable[..., Any] | None) -> Callable[[Any, int], Iterable[str]] | None:
    """
    What `_encoder` makes anew for each value, which takes longer than the text of a small one.

    A snapshot has about a hundred thousand documents. Python does not document it: None where `make` is
    missing, takes other arguments, or writes another text.
    """
    sample = {"b": [1, 0.1, None, True, "é\n"], "a": {"d": [], "c": {}}}
    try:
        pieces: Any = make and make(
            None, _encoder.default, canonical_string, None, ":", ",", True, False, False
        )
        same = bool(pieces) and "".join(pieces(sample, 0)) == _encoder.encode(sample)
    except (TypeError, ValueError, AttributeError):
        return None
    return pieces if same else None


_pieces: Final = fast_encoder(getattr(json.encoder, "c_make_encoder", None))

_TEXTS_IN_A_PIECE: Final = 1000
"""List entries per piece: few pieces, each far smaller than the whole text."""

_names_given: Final[dict[frozenset[str], set[str]]] = {}
"""Each distinct set of field names, shared: one set per value would be larger than the value itself."""


class Noun(BaseModel):
    """An immutable, strictly validated value with a canonical form."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        validate_default=False,
        defer_build=True,
    )

    _values: ClassVar[itemgetter[Any]]
    """Reads the values of the fields, and nothing else, from `__dict__`."""

    def model_post_init(self, _context: Any, /) -> None:
        """Share one set of field names among all values that were given the same fields."""
        names = self.model_fields_set
        object.__setattr__(self, "__pydantic_fields_set__", _names_given.setdefault(frozenset(names), names))

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Prepare the field getter for comparisons: one epoch makes hundreds of thousands of them."""
        super().__pydantic_init_subclass__(**kwargs)
        if cls.model_fields:
            cls._values = itemgetter(*cls.model_fields)

    def __eq__(self, other: object) -> bool:
        """True if all fields are equal; cached properties do not count."""
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        values = self._values
        return bool(values(self.__dict__) == values(other.__dict__))

    def __hash__(self) -> int:
        return hash(self._values(self.__dict__))

    @classmethod
    def of_valid(cls, **fields: Any) -> Self:
        """
        A value with these fields, which must be valid: by name, of the types that validation leaves.

        All other fields have their defaults. A plan has hundreds of thousands of small values that follow
        from checked ones: to validate them again takes longer than to compute them.
        """
        values, factories = _defaults_of(cls)
        values = values | fields
        for name, factory in factories:
            if name not in fields:
                values[name] = factory()
        made = cls.__new__(cls)
        assign = object.__setattr__
        assign(made, "__dict__", values)
        assign(made, "__pydantic_fields_set__", _names_given.setdefault(frozenset(fields), set(fields)))
        assign(made, "__pydantic_extra__", None)
        assign(made, "__pydantic_private__", None)
        return made

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy with some fields changed; cached properties of the old values are dropped."""
        copied = super().model_copy(update=update, deep=deep)
        # A copy with other fields would keep what was computed from the old ones.
        for name in copied.__dict__.keys() - type(copied).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def document(self) -> dict[str, Any]:
        """The value as plain JSON types, without fields at their defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the canonical document."""
        return hash_of(self.canonical_pieces())

    def canonical_pieces(self) -> Iterator[str]:
        """Canonical JSON of the document; large values yield several pieces."""
        yield canonical_json(self.document())

    @cached_property
    def canonical_text(self) -> str:
        """Canonical JSON of the document, cached: for values that many others contain."""
        return "".join(self.canonical_pieces())

    @cached_property
    def full_text(self) -> str:
        """Canonical JSON of the value with all its fields, including those at their defaults."""
        return canonical_json(self.model_dump(mode="json"))


@cache
def _defaults_of(noun: type[Noun]) -> tuple[dict[str, Any], tuple[tuple[str, Callable[[], Any]], ...]]:
    """Defaults by field in order, None without one; and the factories of those that each value has anew."""
    fields = noun.model_fields
    fixed = {name: None if each.is_required() else each.default for name, each in fields.items()}
    made: Any = ((name, each.default_factory) for name, each in fields.items() if each.default_factory)
    return fixed, tuple(made)


def canonical_json(document: Any) -> str:
    """Canonical JSON, one text per value: keys sorted, no spaces, no NaN."""
    return "".join(_pieces(document, 0)) if _pieces else _encoder.encode(document)


def canonical_list(texts: Iterable[str]) -> Iterator[str]:
    """Canonical JSON of a list in pieces, from the canonical JSON of its entries."""
    left, before = iter(texts), "["
    while some := list(islice(left, _TEXTS_IN_A_PIECE)):
        yield before + ",".join(some)
        before = ","
    yield "[]" if before == "[" else "]"


def canonical_object(document: Mapping[str, Any], given: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Canonical JSON of a document in pieces; `given` holds some members as canonical JSON pieces."""
    before = "{"
    for key in sorted(document.keys() | given.keys()):
        yield f"{before}{canonical_json(key)}:"
        yield from given[key] if key in given else (canonical_json(document[key]),)
        before = ","
    yield "{}" if before == "{" else "}"


def fingerprint_of(document: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of a document of plain JSON types."""
    return hash_of((canonical_json(document),))


def hash_of(pieces: Iterable[str]) -> str:
    """SHA-256 (hex) of a text given in pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece.encode())
    return digest.hexdigest()
