"""Tables: every format gives the same arrays; every fault is named with its place."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mssl.cli import commands
from mssl.cli._options import in_options
from mssl.exceptions import DataError, MSSLError, ParameterError, UnseenTaskError
from mssl.files import formats as _table_files
from mssl.files.formats import write_table
from mssl.files.tables import (
    TableSchema,
    blank_twins,
    check_tasks,
    detect_family,
    learn_schema,
    read_table,
    read_task_column,
    target_values,
)

pa = pytest.importorskip("pyarrow")

TEXT = """station,temp,sky,wind,dry
007,1.5,grey,3,true
007,2.5,blue,4,false
Oslo,-3,grey,5,true
Oslo,0.25,"red, dark",6,true
"""


def write(folder, text, name="data.csv", encoding="utf-8"):
    path = Path(folder) / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.fixture(params=["pyarrow", "plain"])
def reader(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(_table_files, "find_spec", lambda name: None)
    return request.param


COLUMNS = ("--task", "station", "--target", "temp")
QUICK = ("--set", "graph_penalty=0.3", "--family", "gaussian")


def called(*args):
    """What a command prints."""
    from click.testing import CliRunner

    return CliRunner().invoke(commands, [str(arg) for arg in args], catch_exceptions=False).output


def refused(*args):
    """What a command says when it refuses."""
    with pytest.raises(MSSLError) as caught:
        called(*args)
    return str(caught.value)


def usage(*args):
    """What a command says when it is called wrongly."""
    from click import UsageError

    with pytest.raises(UsageError) as caught:
        commands.main([str(arg) for arg in args], standalone_mode=False)
    return str(caught.value)


def encode(path, **options):
    table = read_table(path, text=["station"])
    schema = learn_schema(table, "station", "temp", **options)
    return schema, schema.encode(table, with_target=True, training=True)


def test_columns_become_numbers_and_categories(reader, tmp_path):
    path = write(tmp_path, TEXT.replace("true", "1").replace("false", "0"))
    schema, rows = encode(path)
    assert schema.feature_names == ["sky=blue", "sky=grey", "sky=red, dark", "wind", "dry"]
    assert rows.X.tolist() == [[0, 1, 0, 3, 1], [1, 0, 0, 4, 0], [0, 1, 0, 5, 1], [0, 0, 1, 6, 1]]
    assert rows.tasks.tolist() == ["007", "007", "Oslo", "Oslo"]
    assert rows.target.tolist() == [1.5, 2.5, -3.0, 0.25]


def test_every_format_gives_the_same(tmp_path):
    from pyarrow import csv, feather, parquet

    path = write(tmp_path, TEXT)
    expected = encode(path)
    arrow = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types={"station": pa.string()}))
    parquet.write_table(arrow, tmp_path / "a.parquet")
    feather.write_feather(arrow, tmp_path / "a.feather")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    tabs = TEXT.replace('"red, dark"', "red; dark").replace(",", "\t").replace(";", ",")
    write(tmp_path, tabs, "a.tsv")
    write(tmp_path, "\ufeff" + TEXT.replace(",", ";").replace("red;", "red,").replace("\n", "\r\n"), "b.csv")
    for name in ("a.parquet", "a.feather", "a.csv.gz", "a.tsv", "b.csv"):
        schema, rows = encode(tmp_path / name)
        assert schema == expected[0], name
        assert all(np.array_equal(a, b) for a, b in zip(rows, expected[1], strict=True)), name


def test_parquet_without_pandas_index_and_with_categories(tmp_path):
    from pyarrow import parquet

    table = pa.table(
        {
            "station": pa.array([1, 1, 2], pa.int64()),
            "temp": pa.array([1.0, 2.0, 3.0], pa.float32()),
            "sky": pa.array(["a", "b", None]).dictionary_encode(),
            "__index_level_0__": pa.array([7, 8, 9]),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match="1 of 3 rows lack a value"):
        schema, rows = encode(tmp_path / "a.parquet", missing="drop")
    assert schema.feature_names == ["sky=b"]
    assert rows.tasks.tolist() == ["1", "1"]
    nested = pa.table({"station": ["a"], "temp": [1.0], "x": [[1, 2]]})
    parquet.write_table(nested, tmp_path / "b.parquet")
    with pytest.raises(DataError, match="'x' holds list"):
        encode(tmp_path / "b.parquet")


def test_only_tasks_that_have_rows_count(tmp_path):
    from pyarrow import parquet

    stations = pa.DictionaryArray.from_arrays([2, 0, 2], ["b", "never", "a"])
    parquet.write_table(pa.table({"station": stations, "x": [1.0, 2.0, 3.0]}), tmp_path / "a.parquet")
    tasks = read_task_column(read_table(tmp_path / "a.parquet")["station"], "station")
    assert tasks.names.tolist() == ["a", "b"]
    assert tasks.codes.tolist() == [0, 1, 0]


def test_categories_without_a_name_or_named_twice_are_those_of_plain_text(tmp_path):
    from pyarrow import feather

    words = ["b", None, "b", "a"]
    odd = pa.DictionaryArray.from_arrays([0, 1, 2, 3], words)
    feather.write_feather(pa.table({"odd": odd, "plain": pa.array(words)}), tmp_path / "a.feather")
    table = read_table(tmp_path / "a.feather")
    codes, levels = table["odd"].text()
    assert (codes.tolist(), levels) == ([0, -1, 0, 1], ["b", "a"])
    assert table["plain"].text()[0].tolist() == codes.tolist()


def test_columns_that_arrow_cannot_turn_into_text_are_told(tmp_path):
    from pyarrow import feather

    odd = {"zone": pa.array([0], pa.timestamp("us", "Nowhere/Land")), "span": pa.array([pa.MonthDayNano([1, 2, 3])])}
    feather.write_feather(pa.table(odd), tmp_path / "a.feather")
    table = read_table(tmp_path / "a.feather")
    for name in odd:
        with pytest.raises(DataError, match=f"{name!r} holds .* convert it to text"):
            read_task_column(table[name], name)


@pytest.mark.parametrize("block", [2**12, 2**19, 2**30])
def test_large_files_come_in_pieces_and_stay_whole(block, tmp_path, monkeypatch):
    monkeypatch.setattr(_table_files, "BLOCK", block)
    random = np.random.default_rng(0)
    number, station = random.normal(size=60_000), np.sort(random.integers(0, 500, 60_000))
    lines = [f"s{s},{x!r},{'even' if s % 2 else 'odd'}" for s, x in zip(station, number.tolist(), strict=True)]
    path = write(tmp_path, "\n".join(["station,temp,sky", *lines]))
    assert path.stat().st_size > 3 * 2**19  # more than one block of the reader, but for the largest
    _, found = encode(path)
    assert found.tasks.tolist() == [f"s{s}" for s in station]
    assert np.array_equal(found.target, number)
    assert np.array_equal(found.X[:, 0], 1.0 - station % 2)


def test_sorting_by_task_keeps_rows_together(tmp_path):
    lines = TEXT.splitlines()
    path = write(tmp_path, "\n".join([lines[0], lines[3], lines[1], lines[4], lines[2]]))
    schema, plain = encode(path)
    rows = schema.encode(read_table(path, text=["station"]), with_target=True, by_task=True)
    assert rows.tasks.tolist() == sorted(plain.tasks.tolist())
    assert np.array_equal(rows.X, plain.X[rows.rows])
    assert np.array_equal(rows.target, plain.target[rows.rows])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("station,temp,x\n", "no rows"),
        ("station,temp,x\na,1,2\na,1\n", r"Line 3 .* has 2 values; its first line names 3"),
        ('station,temp,x\n"a\nb",1,2\na,1,2,9\n', r"Line 4 .* has 4 values"),
        ("station,temp,\na,1,2\n", "Column 3 .* has no name"),
        ("station,temp,temp\na,1,2\n", "two columns named 'temp'"),
        ("Station,temp,x\na,1,2\n", r"no column 'station'.*Is 'Station' meant|lacks"),
        ("station,temp,x\n,1,2\n", "1 rows have no task"),
        ("station,temp,x\na,1,2\n  ,1,2\n", r"no task .*first: row 2"),
        (f"station,temp,x\n{'a' * 300},1,2\n", "300 characters"),
        ("station,temp,x\na,1,inf\n", "'x' holds 1 infinite"),
        ("station,temp,x\na,1,1\na,1,oops\na,2,3\n", r"'x' holds numbers and text .*'oops'"),
        ("station,temp,x\na,1,2001-01-01\na,1,2001-02-01\n", "'x' holds dates"),
        ("station,temp,x\na,1,2001-01\na,1,2001-02\n", "'x' holds dates"),
        ("station,temp,x\na,1,same\na,1,same\n", "'x' holds nothing but 'same'"),
        ("station,temp,x\na,1,\na,1,\n", r"missing in 'x' \(2 rows\), first in row 1"),
        ("station,temp,x\na,,1\na,1,\n", r"missing in 'temp' \(1 rows\), 'x' \(1 rows\)"),
        ("station,temp\na,1\n", "give at least one column of features"),
    ],
)
def test_faults_are_named(reader, text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        encode(write(tmp_path, text))


@pytest.mark.parametrize("column", ["temp", "x"])
@given(values=st.lists(st.floats(-1e7, 1e7), min_size=2, max_size=6, unique_by=lambda v: f"{v:.2f}"))
@settings(max_examples=15, deadline=None)
def test_separated_thousands_are_refused_and_numbers_once_removed(column, values, tmp_path_factory):
    folder = tmp_path_factory.mktemp("thousands")
    shown = [f"{value:,.2f}" for value in values]
    other = "temp" if column == "x" else "x"
    text = f"station,{column},{other}\n" + "".join(f'a,"{cell}",{k}\n' for k, cell in enumerate(shown))
    if any("," in cell for cell in shown):
        with pytest.raises(DataError, match=rf"column '{column}'.*separators.*1234\.5|Column 'x'.*separators.*1234\.5"):
            encode(write(folder, text))
        text = f"station,{column},{other}\n" + "".join(
            f"a,{cell.replace(',', '')},{k}\n" for k, cell in enumerate(shown)
        )
    rows = encode(write(folder, text))[1]
    read = rows.X[:, 0] if column == "x" else rows.target
    np.testing.assert_array_equal(read, [float(cell.replace(",", "")) for cell in shown])


@pytest.mark.parametrize(
    "cells", [("1 234", "5"), ("1'234.5", "2'000"), ("1.234,5", "7,25"), ("0,5", "1,5"), ("-1,000", "NA")]
)
def test_other_ways_to_separate_are_refused_as_well(cells, reader, tmp_path):
    rows = "".join(f'a,{k},"{cell}"\n' for k, cell in enumerate(cells))
    with pytest.raises(DataError, match="'x' holds numbers with separators"):
        encode(write(tmp_path, "station,temp,x\n" + rows))


@pytest.mark.parametrize(
    "cells", [("a,b", "c"), ("1,2,3", "4,5,6"), ("192.168.1.1", "10.0.0.1"), ("1,234 EUR", "5 EUR")]
)
def test_labels_with_commas_and_points_are_categories(cells, reader, tmp_path):
    rows = "".join(f'a,{k},"{cell}"\n' for k, cell in enumerate(cells))
    assert encode(write(tmp_path, "station,temp,x\n" + rows))[0].columns[0].categories == tuple(sorted(cells))


def test_other_encodings_are_refused_with_the_line(reader, tmp_path):
    with pytest.raises(DataError, match=r"not UTF-8: line 3, column 'station', .*\\xe9"):
        encode(write(tmp_path, "station,temp,x\na,1,2\ncafé,1,2\n", encoding="latin-1"))
    with pytest.raises(DataError, match="not UTF-8: line 1"):
        encode(write(tmp_path, "stätion,temp,x\na,1,2\n", encoding="utf-16"))


@pytest.mark.parametrize("column", ["temp", "x", "note"])
@pytest.mark.parametrize("late", [0, 50_000])
def test_the_column_of_other_encodings_is_named_and_can_be_left_out(reader, column, late, tmp_path):
    rows = [{"station": "a", "temp": k, "x": k, "note": '"two\nlines"' if k % 2 else "one"} for k in range(late + 4)]
    rows[-1][column] = "é"
    text = "\n".join(["station,temp,x,note", *(",".join(map(str, row.values())) for row in rows)])
    path = write(tmp_path, text, encoding="latin-1")
    line = text[: text.index("é")].count("\n") + 1
    with pytest.raises(DataError, match=rf"not UTF-8: line {line}, column '{column}', .*\\xe9.*LATIN1"):
        read_table(path)
    assert set(read_table(path, drop=[column]).columns) == {"station", "temp", "x", "note"} - {column}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_encodings_with_a_mark_are_told_apart(encoding, reader, tmp_path):
    with pytest.raises(DataError, match=f"iconv -f {encoding.upper()} -t UTF-8"):
        read_table(write(tmp_path, TEXT, encoding=encoding))


def test_a_folder_is_no_table(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        read_table(tmp_path)


def test_dropped_columns_are_not_read_on_the_command_line(tmp_path):
    rows = "".join(f"{'ab'[k % 2]},{k % 5},{k % 7},é\n" for k in range(40))
    path = write(tmp_path, "station,temp,x,note\n" + rows, encoding="latin-1")
    assert "line 2, column 'note'" in refused("fit", path, *COLUMNS, *QUICK)
    called("fit", path, *COLUMNS, *QUICK, "--drop", "note")
    assert "no column 'notes'" in refused("fit", path, *COLUMNS, *QUICK, "--drop", "notes,note")


MANY = "station,temp,x,hour\n" + "".join(f"{'abc'[k % 3]},{k * k % 7 - 3.5},{k * k % 11},{k // 3}\n" for k in range(60))


def test_a_constant_target_leaves_nothing_to_explain(tmp_path):
    rows = "".join(f"{'ab'[k % 2]},{(0.1, 7)[k % 2]},{k % 7}\n" for k in range(40))
    path = write(tmp_path, "station,temp,x\n" + rows)
    told = called("fit", path, *COLUMNS, "--family", "gaussian")
    assert "nothing to explain" in told
    assert "nan" not in told


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "--method", "r-mssl"),
        ("fit", "--method", "r_mssl_copula"),
        ("compare", "--methods", "r-mssl"),
        ("select", "--method", "r-mssl"),
    ],
)
def test_methods_on_residuals_ask_for_the_column_of_times(command, tmp_path):
    path = write(tmp_path, MANY)
    told = refused(*command, path, *COLUMNS)
    assert "--time" in told
    assert "residual'" not in told
    if command[0] == "fit":
        called(*command, path, *COLUMNS, *QUICK, "--set", "coef_penalty=0.1", "--time", "hour")


def test_a_known_graph_comes_from_a_table_of_edges(tmp_path):
    import mssl

    path, model = write(tmp_path, MANY), tmp_path / "m.npz"
    fit = ("fit", path, *COLUMNS, "--method", "s2m2r", "--save", model)
    assert "--edges" in refused(*fit)
    edges = write(tmp_path, "one,other,note,weight\nc,a,,2\n", "edges.csv")
    with pytest.warns(UserWarning, match="share an occasion"):  # the small table repeats its numbers in every task
        called(*fit, "--edges", edges)
    found = mssl.load(model).graph_
    assert [(edge.task_i, edge.task_j) for edge in found.support()] == [("a", "c")]
    by_hand = mssl.presets.s2m2r(edges=[(0, 2, 2.0)])
    called(*fit, "--edges", edges, "--set", "structure__alpha=1")
    columns = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(1, 2, 3))
    by_hand.fit(columns[:, 1:], columns[:, 0], tasks=np.array(["abc"[k % 3] for k in range(60)]))
    np.testing.assert_allclose(mssl.load(model).coef_, by_hand.coef_, rtol=1e-6)
    for text, message in (
        ("one,other\na,d\n", "'d' are not in the model"),
        ("one,other\na,a\n", "two different tasks"),
        ("one,other,weight\na,b,-1\n", "weights are numbers ≥ 0"),
        ("one\na\n", "two columns"),
    ):
        assert message in refused(*fit, "--edges", write(tmp_path, text, "bad.csv"))
    assert "use s2m2r" in usage("fit", path, *COLUMNS, "--edges", edges)


def test_advice_for_missing_values_can_be_followed(tmp_path):
    lines = MANY.splitlines()
    features = write(tmp_path, "\n".join([*lines[:-1], "c,1,,3"]), "features.csv")
    target = write(tmp_path, "\n".join([*lines[:-1], "c,,1,3"]), "target.csv")
    model = tmp_path / "m.npz"
    assert "--missing mean" in in_options(refused("fit", features, *COLUMNS, *QUICK))
    assert "--missing mean" not in in_options(refused("fit", target, *COLUMNS, *QUICK))
    called("fit", features, *COLUMNS, *QUICK, "--missing", "mean")
    with pytest.warns(UserWarning, match="1 of .* rows lack a value and were dropped"):
        called("fit", target, *COLUMNS, *QUICK, "--missing", "drop")
    called("fit", write(tmp_path, MANY), *COLUMNS, *QUICK, "--save", model)
    assert "fit the model again with --missing drop" in in_options(refused("predict", model, features))
    assert "is no intact model file" in refused("inspect", features)
    assert "Save the model again" not in refused("inspect", features)


def test_tasks_that_are_too_small_for_folds_are_counted(tmp_path):
    path = write(tmp_path, MANY + "z,1,2,3\nz,2,3,4\n")
    told = refused("compare", path, *COLUMNS, "--folds", "5", "--methods", "ridge")
    assert "Task 'z' has 2 rows" in told
    called("compare", write(tmp_path, MANY + "z,1,2,3\n" * 3), *COLUMNS, "--folds", "3", "--methods", "ridge")


def test_few_features_can_be_halved_by_rows(tmp_path):
    path = write(tmp_path, MANY)
    told = refused("select", path, *COLUMNS)
    assert "2 features to halve" in told
    assert "--subsample samples" in in_options(told)
    called("select", path, *COLUMNS, "--subsample", "samples", "--subsamples", "2")


def test_free_text_is_no_category(tmp_path):
    rows = "".join(f"a,1,word {k}\n" for k in range(150))
    with pytest.raises(DataError, match="150 different texts"):
        encode(write(tmp_path, "station,temp,x\n" + rows))


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.gz", "a.parquet.gz"])
def test_unknown_endings(name, tmp_path):
    with pytest.raises(DataError, match="allowed are the endings"):
        read_table(write(tmp_path, TEXT, name))


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.csv.gz"])
def test_broken_files(name, tmp_path):
    with pytest.raises(DataError, match=r"a\."):
        read_table(write(tmp_path, TEXT, name))
    with pytest.raises(DataError, match="no file"):
        read_table(tmp_path / f"b{name}")


MISSING = "station,temp,x,c\na,1,2,u\na,2,,v\nb,3,4,\nb,,6,v\n"


def test_missing_rows_are_dropped(reader, tmp_path):
    told = r"3 of 4 rows lack a value and were dropped; .*'temp' \(1\), 'x' \(1\), 'c' \(1\)\. .*tasks 'b'"
    with pytest.warns(UserWarning, match=told):
        _, rows = encode(write(tmp_path, MISSING), missing="drop")
    assert rows.rows.tolist() == [0]
    assert rows.dropped == 3
    with pytest.raises(DataError, match="no row without missing values"):
        encode(write(tmp_path, "station,temp,x,c\na,,2,u\nb,1,,v\n"), missing="drop")


def test_missing_features_are_filled_with_training_means(reader, tmp_path):
    with pytest.warns(UserWarning, match=r"1 of 4 rows .*dropped; missing are values of 'temp' \(1\)\."):
        _, rows = encode(write(tmp_path, MISSING), missing="mean")
    assert rows.X.tolist() == [[2, 0], [4, 1], [4, 2 / 3]]
    schema, rows = encode(write(tmp_path, MISSING.replace("b,,6", "b,9,6")), missing="mean")
    assert rows.X.tolist() == [[2, 0], [4, 1], [4, 2 / 3], [6, 1]]
    new = schema.read(write(tmp_path, "c,x,station\n,,a\n", "new.csv"))
    assert schema.encode(new).X.tolist() == [[4, 2 / 3]]


def test_missing_targets_and_features_are_treated_apart(reader, tmp_path):
    table = read_table(write(tmp_path, MISSING), text=["station"])
    schema = learn_schema(table, "station", "temp", missing="mean")
    with pytest.raises(DataError, match=r"in 'temp' \(1 rows\), first in row 4; .*which cannot be filled\.$"):
        schema.encode(table, with_target=True, training=True, missing_target="error")
    table = read_table(write(tmp_path, MISSING), text=["station"])
    schema = learn_schema(table, "station", "temp")
    with pytest.raises(DataError, match=r"in 'x' \(1 rows\), 'c' \(1 rows\), first in row 2; .*missing='drop'"):
        schema.encode(table, with_target=True, training=True, missing_target="drop")


def test_new_rows_are_read_as_in_training(reader, tmp_path):
    schema, _ = encode(write(tmp_path, TEXT.replace("true", "1").replace("false", "0")))
    new = "wind,other,dry,sky,station\n1,z,0,blue,Oslo\n"
    rows = schema.encode(schema.read(write(tmp_path, new, "new.csv")))
    assert rows.X.tolist() == [[1, 0, 0, 1, 0]]
    with pytest.warns(UserWarning, match="'sky' holds 'green', not seen"):
        strange = schema.encode(schema.read(write(tmp_path, new.replace("blue", "green"), "new.csv")))
    assert strange.X.tolist() == [[0, 0, 0, 1, 0]]
    with pytest.raises(DataError, match=r"lacks the columns 'sky'"):
        schema.read(write(tmp_path, new.replace("sky", "skies"), "new.csv"))
    with pytest.raises(DataError, match="'wind' holds 'high'; it was numeric in training"):
        schema.encode(schema.read(write(tmp_path, new.replace("\n1,", "\nhigh,"), "new.csv")))


def test_parameters_that_contradict_each_other(tmp_path):
    table = read_table(write(tmp_path, TEXT))
    for options in ({"missing": "maybe"}, {"features": ["temp"]}):
        with pytest.raises(ParameterError):
            learn_schema(table, "station", "temp", **options)
    with pytest.raises(ParameterError, match="both"):
        learn_schema(table, "temp", "temp")
    with pytest.raises(DataError, match="no column 'humidity'"):
        learn_schema(table, "station", "temp", drop=["humidity"])
    assert learn_schema(table, "station", "temp", drop=["sky", "dry"]).feature_names == ["wind"]


def test_families_are_found_out(tmp_path):
    def family(*values):
        table = read_table(write(tmp_path, "t\n" + "".join(f"{v}\n" for v in values)))
        return detect_family(target_values(table["t"]), "t")

    assert family("yes", "no", "yes") == "binary"
    assert family(0, 1, 1) == "binary"
    assert family(0, 3, 7) == "poisson"
    assert family(1, 3, 7) == "gaussian"
    assert family(-1, 0, 7) == "gaussian"
    assert family(0, 0.5, 7) == "gaussian"
    with pytest.raises(DataError, match="3 labels"):
        family("a", "b", "c")


def test_tasks_that_differ_in_blanks():
    assert blank_twins(["Oslo", "Oslo ", "New York", "NewYork", "Rome"]) == [["Oslo", "Oslo "], ["New York", "NewYork"]]
    check_tasks(["a"], ["a", "b"])
    with pytest.raises(UnseenTaskError, match="'Oslo ' differs from 'Oslo' only in blanks"):
        check_tasks(["Oslo "], ["Oslo"])


def test_names_that_collide(tmp_path):
    with pytest.raises(DataError, match="both be named 'x=b'"):
        encode(write(tmp_path, "station,temp,x,x=b\na,1,a,1\na,1,b,2\n"))


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8).filter(
    lambda text: text.strip() and not text.startswith("\ufeff")
)


@given(st.lists(NAMES, min_size=2, max_size=6, unique=True), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_hostile_names_survive(tmp_path_factory, names, seed):
    """Any text can be a task or a column, quotes, commas, line ends and control characters included."""
    import csv

    path = tmp_path_factory.mktemp("names") / "data.csv"
    values = np.random.default_rng(seed).normal(size=(len(names), 2))
    header = ["task", "y", f"x{names[0]}"]
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *([n, *v] for n, v in zip(names, values.tolist(), strict=True))])
    table = read_table(path, text=["task"])
    rows = learn_schema(table, "task", "y").encode(table, with_target=True)
    assert table.names == header
    assert rows.tasks.tolist() == names
    assert np.array_equal(rows.X.ravel(), values[:, 1])


def test_schema_survives_saving(tmp_path):
    import mssl

    schema, rows = encode(write(tmp_path, TEXT), missing="mean")
    model = mssl.MultiTaskGLM().fit(rows.X, rows.target, tasks=rows.tasks)
    model.table_ = schema
    again = mssl.load(mssl.save(model, tmp_path / "m.npz"))
    assert isinstance(again.table_, TableSchema)
    assert again.table_ == schema


def damaged(content, random):
    """A copy with some bytes changed, removed, repeated or put in."""
    content = bytearray(content)
    for _ in range(int(random.integers(1, 4))):
        i = int(random.integers(len(content)))
        j = min(len(content), i + int(random.integers(1, 100)))
        how = int(random.integers(6))
        if how == 0:
            content[i] = int(random.integers(256))
        elif how == 1:
            content[i] ^= 1 << int(random.integers(8))
        elif how == 2:
            del content[max(i, 1) :]
        elif how == 3:
            content[i:j] = bytes(j - i)
        elif how == 4:
            content[i:i] = random.bytes(8)
        else:
            content[i : i + 4] = b"\xff\xff\xff\x7f"
    return bytes(content)


DAMAGE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import numpy as np
from test_tables import damaged, read_or_refuse
folder, name, count = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
whole = (folder / name).read_bytes()
for seed in range(count):
    (folder / name).write_bytes(damaged(whole, np.random.default_rng(seed)))
    read_or_refuse(folder / name)
print("survived")
"""


def read_or_refuse(path):
    """Read a table and everything in it; a stated error is a good end too."""
    try:
        table = read_table(path, text=["station"])
        for column in table.columns.values():
            column.text()
            if column.kind == "number":
                column.numbers()
    except DataError:
        pass


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.feather", "plain.feather"])
def test_damaged_files_are_read_or_refused(name, tmp_path):
    """In a process of its own: Arrow could end it."""
    import pyarrow as pa
    from pyarrow import csv, feather, parquet

    (tmp_path / "a.csv").write_text(TEXT)
    table = csv.read_csv(tmp_path / "a.csv")
    table = table.append_column("kind", pa.array(["u", "v"] * len(table))[: len(table)].dictionary_encode())
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    parquet.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, tmp_path / "a.feather")
    feather.write_feather(table, tmp_path / "plain.feather", compression="uncompressed")
    arguments = [str(Path(__file__).parent), str(tmp_path), name, "400"]
    done = subprocess.run([sys.executable, "-c", DAMAGE, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "survived"), done.stderr[-2000:]


def test_pages_that_mssl_writes_have_checksums(tmp_path):
    """Every change inside the pages of a Parquet file that mssl wrote is found."""
    path = tmp_path / "a.parquet"
    write_table(path, ["task", "y"], [([f"t{k % 3}" for k in range(200)], [k / 7 for k in range(200)])])
    whole = path.read_bytes()
    first = read_table(path)["y"].numbers()
    for place in range(4, len(whole) // 2, 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            again = read_table(path)["y"].numbers()
        except DataError:
            continue
        assert np.array_equal(again, first)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.parquet", "a.feather"])
def test_what_a_file_may_unpack_to_has_a_limit(name, tmp_path, monkeypatch):
    path = tmp_path / name
    write_table(path, ["task", "y"], [(["a"] * 50_000, [1.5] * 50_000)])
    monkeypatch.setenv("MSSL_UNPACK_LIMIT", "100000")
    with pytest.raises(DataError, match=r"unpacks to more than 100000.*MSSL_UNPACK_LIMIT"):
        read_table(path)
    monkeypatch.setenv("MSSL_UNPACK_LIMIT", "many")
    with pytest.raises(ParameterError, match="number of bytes"):
        read_table(path)
    monkeypatch.delenv("MSSL_UNPACK_LIMIT")
    assert len(read_table(path)["y"].numbers()) == 50_000
    monkeypatch.setattr(_table_files, "_UNPACKED", 1000)
    monkeypatch.setattr(_table_files, "_UNPACKED_RATIO", 1)
    with pytest.raises(DataError, match="unpacks to more"):
        read_table(path)


def test_lines_without_an_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_table_files, "_LONGEST_LINE", 1000)
    monkeypatch.setattr(_table_files, "_MOST_COLUMNS", 100)
    (tmp_path / "a.csv").write_text("task,y\n" + "a" * 2000)
    with pytest.raises(DataError):
        read_table(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("x" * 2000)
    with pytest.raises(DataError, match=r"Line 1 .* no row of a table"):
        read_table(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("," * 200)
    with pytest.raises(DataError, match="more than 100 columns"):
        read_table(tmp_path / "a.csv")
