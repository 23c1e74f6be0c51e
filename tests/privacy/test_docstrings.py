"""Everything public on the privacy path says which theorem it rests on, and shows itself at work."""

import importlib
import inspect
import pkgutil

import pytest
from tests.each import each

import tabulae.privacy

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(tabulae.privacy.__path__, "tabulae.privacy.")
]
# protocols and abstract kinds: the theorem stands with what fills them
KINDS = {"PrivacyLoss", "NoiseLaw", "RandomBits", "Sampler", "DecreasingWeights", "Profile", "Curve"}


def public():
    for module in MODULES:
        for name, thing in vars(module).items():
            ours = getattr(thing, "__module__", None) == module.__name__
            if ours and not name.startswith("_") and (inspect.isfunction(thing) or inspect.isclass(thing)):
                yield thing


@each("thing", public())
def test_states_what_it_costs_in_privacy(thing):
    doc = inspect.getdoc(thing) or ""
    assert doc
    record = inspect.isclass(thing) and hasattr(thing, "__dataclass_fields__") and "Privacy:" not in doc
    if thing.__name__ not in KINDS and not record:
        assert "Privacy:" in doc


@pytest.mark.parametrize("name", ["charge", "settle", "disclosures", "find", "create", "open", "export_json"])
def test_the_ledger_states_it_for_every_verb(name):
    assert "Privacy:" in (inspect.getdoc(getattr(tabulae.privacy.Ledger, name)) or "")


def test_what_is_exported_exists_and_is_sorted():
    assert all(hasattr(tabulae.privacy, name) for name in tabulae.privacy.__all__)
    assert len(set(tabulae.privacy.__all__)) == len(tabulae.privacy.__all__)
