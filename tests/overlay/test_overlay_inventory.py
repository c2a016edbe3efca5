from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.errors import DamagedError
from medusa.overlay.inventory import MAX_INVENTORY, Inventory, is_missing
from medusa.overlay.json_folder import JsonFolder

NAMES = st.sampled_from([f"n{number}" for number in range(6)])
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove", "reopen", "torn"]), NAMES))


@given(STEPS)
def test_the_inventory_has_the_added_names_without_the_removed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("place") / "things"
    inventory, names = Inventory(folder), set[str]()
    for step, name in steps:
        if step == "add":
            inventory.add(name)
            names.add(name)
        elif step == "remove":
            inventory.remove(name, "never there")
            names.discard(name)
        else:
            if step == "torn" and inventory.path.exists():
                with inventory.path.open("a") as file:
                    file.write(f"-{name}")  # the process died here
            inventory = Inventory(folder)
        assert inventory.names == names
    assert inventory.missing(["n0", "n1", "other"]) == sorted(names - {"n0", "n1"})


def test_a_long_inventory_is_compacted(tmp_path: Path) -> None:
    inventory = Inventory(tmp_path / "things")
    inventory.add("kept")
    for _ in range(1000):
        inventory.add("name")
        inventory.remove("name")
    assert inventory.path.stat().st_size < 4000
    assert Inventory(tmp_path / "things").names == {"kept"}


def test_the_error_of_an_unreadable_inventory_says_how_to_mend_it(tmp_path: Path) -> None:
    path = Inventory(tmp_path / "things").path
    path.touch()
    os.truncate(path, MAX_INVENTORY + 1)
    with pytest.raises(DamagedError, match=f"{path} is damaged.*remove it"):
        Inventory(tmp_path / "things").missing([])


def test_a_missing_file_is_reported_until_it_is_back_or_removed(tmp_path: Path) -> None:
    folder = tmp_path / "things"
    folder.mkdir()
    files = JsonFolder(folder, int, "mend it")
    for name in ("a.json", "b.json", "c.json"):
        files.save(name, 7)
    files.remove("c.json")
    kept = (folder / "a.json").read_bytes()
    (folder / "a.json").unlink()
    for _ in range(2):
        told: list[DamagedError] = []
        assert list(JsonFolder(folder, int, "mend it").load(told.append)) == [7]
        assert [str(each) for each in told] == [is_missing(folder / "a.json", Inventory(folder))]
    with pytest.raises(DamagedError, match=r"a\.json is missing"):
        list(JsonFolder(folder, int, "mend it").load())
    (folder / "a.json").write_bytes(kept)
    assert list(JsonFolder(folder, int, "mend it").load()) == [7, 7]
    (folder / "a.json").unlink()
    Inventory(folder).path.unlink()
    assert list(JsonFolder(folder, int, "mend it").load()) == [7]
