from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from ticklake.contracts import FORMAT_VERSION, TickData
from ticklake.errors import BadSimulationSettings
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.simulation.field import ENERGY, MAX_VALUE, STRUCTURE
from ticklake.storage.codec import encode_ticks
from ticklake.storage.columns import NO_PARENT, TickColumns
from ticklake.world import World

SMALL = SimulationSettings(shape=(24, 40), organisms=30, season_ticks=60)


def after(ticks: int, settings: SimulationSettings = SMALL) -> Ecosystem:
    world = Ecosystem(settings)
    for _ in range(ticks):
        world.step()
    return world


def arrays(columns: TickColumns) -> dict[str, Any]:
    parts = (columns.cells, columns.organisms)
    return {field.name: getattr(part, field.name) for part in parts for field in dataclasses.fields(part)}


def same(one: TickColumns, other: TickColumns) -> bool:
    pairs = zip(arrays(one).values(), arrays(other).values(), strict=True)
    return one.rng_state == other.rng_state and all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_default_world_booms_busts_and_recovers_and_never_dies_out(seed: int) -> None:
    world, population = Ecosystem(SimulationSettings(seed=seed)), []
    for _ in range(480):
        world.step()
        population.append(world.organisms.alive)
    boom = int(np.argmax(population[:160]))
    bust = boom + int(np.argmin(population[boom : boom + 160]))
    recovery = max(population[bust:])
    assert min(population) > 0
    assert population[boom] > 5 * population[bust]
    assert recovery > 2 * population[bust]


def test_the_default_world_has_thousands_of_occupied_cells_a_tick() -> None:
    world = Ecosystem(SimulationSettings())
    occupied = []
    for _ in range(160):
        world.step()
        occupied.append(len(world.columns(0).cells))
    assert np.mean(occupied) > 10_000


@pytest.mark.parametrize("seed", range(5))
def test_energy_only_comes_from_the_sun_and_only_leaves_as_heat(seed: int) -> None:
    world = Ecosystem(dataclasses.replace(SMALL, seed=seed))
    in_the_beginning = world.total_energy
    for _ in range(200):
        world.step()
        assert world.total_energy == in_the_beginning + world.field.influx - world.field.dissipated
    assert world.field.influx > 0
    assert world.field.dissipated > 0


def test_one_seed_is_one_history_and_another_seed_another() -> None:
    assert same(after(100).columns(0), after(100).columns(0))
    assert not same(after(100).columns(0), after(100, dataclasses.replace(SMALL, seed=7)).columns(0))


def test_what_was_observed_does_not_change_when_the_world_goes_on() -> None:
    world = after(50)
    columns = world.columns(0)
    before = {name: np.copy(array) for name, array in arrays(columns).items()}
    for _ in range(20):
        world.step()
    assert all(np.array_equal(before[name], array) for name, array in arrays(columns).items())


def test_every_observed_value_fits_its_contract() -> None:
    world = Ecosystem(SMALL)
    for _ in range(200):
        world.step()
        cells, who = world.columns(0).cells, world.columns(0).organisms
        assert np.all(np.diff(cells.flat_index) > 0)
        assert cells.flat_index[0] >= 0
        assert cells.flat_index[-1] < 24 * 40
        assert set(np.unique(cells.molecule_type)) <= {ENERGY, STRUCTURE}
        assert cells.molecule_value.min() >= 0
        assert cells.molecule_value.max() <= MAX_VALUE
        assert np.all((cells.molecule_value > 0) | (cells.owner_id > 0))
        assert np.all(who.position >= 0)
        assert np.all(who.position < (24, 40))
        assert np.all(who.energy >= 0)
        assert np.all(who.energy[who.is_dead] == 0)
        assert len(np.unique(who.organism_id)) == len(who)


def test_organisms_descend_from_organisms_and_die_once() -> None:
    world = Ecosystem(SMALL)
    seen, dead = set(world.organisms.organism_id.tolist()), set()
    for tick in range(1, 200):
        world.step()
        who = world.organisms
        for organism, parent, birth, died in zip(
            who.organism_id.tolist(), who.parent_id.tolist(), who.birth_tick.tolist(), who.is_dead.tolist(), strict=True
        ):
            assert organism not in dead
            if organism not in seen:
                assert parent in seen
                assert birth == tick
            if died:
                dead.add(organism)
        seen.update(who.organism_id.tolist())
    assert len(seen) == world.born > 100
    assert len(dead) > 100
    assert len(world.lineages) > 3


def test_the_edges_of_the_world_meet() -> None:
    around = Ecosystem(SMALL).field.around(np.array([0, 24 * 40 - 1]))
    assert around.tolist() == [[0, 23 * 40, 40, 39, 1], [959, 22 * 40 + 39, 39, 958, 23 * 40]]


def test_graves_are_structure_until_they_rot_and_hold_no_more_than_a_value_can() -> None:
    world = Ecosystem(SMALL)
    field, before = world.field, world.total_energy
    remains = np.array([20_000, 20_000, 5], np.int32)
    old = field.value[[3, 4]].tolist()
    field.bury(np.array([3, 3, 4]), remains, np.array([8, 9, 9], np.int32))
    assert field.value[[3, 4]].tolist() == [MAX_VALUE, old[1] + 5]
    assert field.kind[[3, 4, 5]].tolist() == [STRUCTURE, STRUCTURE, ENERGY]
    assert world.total_energy == before + int(remains.sum()) - field.dissipated
    assert field.edible(np.array([3])).tolist() == [0]


def test_a_world_without_organisms_goes_on() -> None:
    world = after(3)
    world.organisms = world.organisms.where(np.zeros(len(world.organisms), np.bool_))
    for _ in range(5):
        world.step()
    assert len(world.columns(0).organisms) == 0
    assert len(world.columns(0).cells) > 0


def test_metadata_describes_the_world() -> None:
    metadata = Ecosystem(dataclasses.replace(SMALL, sampling_interval=10)).metadata("20251014-143025-550e8400", 1_000)
    world = World.of(metadata)
    assert (world.shape, world.toroidal, world.sampling_interval) == ((24, 40), (True, True), 10)
    assert (metadata.initial_seed, metadata.start_time_ms, metadata.format_version) == (42, 1_000, FORMAT_VERSION)
    assert '"organisms": 30' in metadata.resolved_config_json


def test_an_encoded_tick_says_what_the_world_was() -> None:
    world = after(120)
    columns = world.columns(5_000)
    (encoded,) = encode_ticks("run", [columns])
    tick = TickData.FromString(encoded.data)
    assert (tick.simulation_run_id, tick.tick_number, tick.capture_time_ms) == ("run", 120, 5_000)
    assert [cell.flat_index for cell in tick.cells] == columns.cells.flat_index.tolist()
    assert [cell.molecule_value for cell in tick.cells] == columns.cells.molecule_value.tolist()
    assert [one.energy for one in tick.organisms] == columns.organisms.energy.tolist()
    assert [tuple(one.ip.components) for one in tick.organisms] == list(map(tuple, columns.organisms.position.tolist()))
    orphans = [one.organism_id for one in tick.organisms if not one.HasField("parent_id")]
    assert orphans == columns.organisms.organism_id[columns.organisms.parent_id == NO_PARENT].tolist()
    assert {one.program_id.partition("-")[0] for one in tick.organisms} <= {"grazer", "roamer", "hoarder"}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("shape", (2, 100)),
        ("shape", (10, 10, 10)),
        ("shape", (100_000, 100_000)),
        ("seed", -1),
        ("organisms", 0),
        ("season_ticks", 0),
        ("sampling_interval", 0),
    ],
)
def test_impossible_settings_are_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(BadSimulationSettings, match=f"cannot use {setting} = "):
        SimulationSettings(**{setting: value})  # type: ignore[arg-type]
