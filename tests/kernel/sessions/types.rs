//! Tests that every type of value survives the way out of a guest, through the library's types, and back.

use sandfork::Status;
use sandfork::session::{Attachments, OutgoingValue, Session, SessionState};

use super::{assert_ended, open, run, value};
use crate::need::Need;
use crate::recipe::{data_science, standard};
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        values_of_python,
        values_that_return_as_plain_types,
        values_in_bulk
    ];
    let libraries = tests![values_of_numpy, values_of_pandas];
    tests.extend(needing(Need::Packages, libraries));
    tests
}

/// Runs code that has a value, and sends that value back as `again`.
fn return_to_sender(session: &mut Session, code: &str) {
    let report = run(session, format!("given = {code}\ngiven"));
    assert_ended(&report, Status::Ok, SessionState::Live);
    let value = report.outcome().value().cloned().unwrap_or_default();
    let buffers = report.buffers();
    let mut attachments = Attachments::default();
    // In order, so that each buffer keeps the number by which the value refers to it.
    for number in 0..u32::try_from(buffers.len()).expect("there are few") {
        let bytes = buffers.get(number).expect("the file exists").to_vec();
        attachments.bytes(bytes);
    }
    let parcel = OutgoingValue { value, attachments };
    let set = session.set("again", parcel);
    let set = set.unwrap_or_else(|error| panic!("{code}: {error}"));
    assert_ended(&set, Status::Ok, SessionState::Live);
}

#[track_caller]
fn assert_same(session: &mut Session, code: &str, same: &str) {
    return_to_sender(session, code);
    let found = value(session, &format!("type(again), type(given), {same}"));
    assert!(found.ends_with("True)"), "{code}: {found}");
}

fn values_of_python(world: &World) {
    let mut session = open(world, standard());
    let imports = "import datetime, decimal, fractions, math, pathlib, uuid, zoneinfo";
    assert_ended(&run(&mut session, imports), Status::Ok, SessionState::Live);
    for code in [
        "None",
        "[True, False]",
        "[0, -1, 2**63 - 1, -2**63]",
        "[2**63, -2**63 - 1, 10**300]",
        "[0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf]",
        "'text \\x00 \\U0001f40d'",
        "'lone \\ud800 surrogate'",
        "'x' * 40000",
        "[b'bytes', bytearray(b'array'), b'']",
        "((), (1,), ((2, 3), [4]))",
        "[{1, 2}, frozenset({3}), set()]",
        "{1: 'a', (2, 3): None, 'x': {}, b'k': [], 1.5: {'y': ()}}",
        "[1j, complex(-0.5, math.inf)]",
        "[decimal.Decimal('1.10'), decimal.Decimal('Infinity'), decimal.Decimal('-1E+20')]",
        "fractions.Fraction(-1, 3)",
        "[datetime.date(2024, 2, 29), datetime.time(23, 59, 59, 999999, fold=1)]",
        "datetime.datetime(2024, 10, 27, 2, 30, 0, 5, fold=1)",
        "datetime.datetime.now(datetime.timezone.utc)",
        "datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=-3)))",
        "datetime.timedelta(days=-1, seconds=3, microseconds=5)",
        "datetime.timezone(datetime.timedelta(seconds=3600), 'here')",
        "[pathlib.PurePosixPath('/a/b'), pathlib.PurePosixPath('x' * 30000)]",
        "uuid.uuid4()",
        "[range(3), range(2**70, 0, -2)]",
        "list(range(-500, 500))",
        "[float(n) / 7 for n in range(1000)]",
    ] {
        let same = "again == given and type(again) is type(given) and repr(again) == repr(given)";
        assert_same(&mut session, code, same);
    }
    assert_same(&mut session, "[math.nan]", "math.isnan(again[0])");
}

fn values_that_return_as_plain_types(world: &World) {
    let mut session = open(world, standard());
    let definitions = "\
import collections, dataclasses, enum
@dataclasses.dataclass
class Point:
    x: int
    y: object = None
Pair = collections.namedtuple('Pair', 'a b')
class Color(enum.Enum):
    RED = 'red'
class Word(str): pass";
    let report = run(&mut session, definitions);
    assert_ended(&report, Status::Ok, SessionState::Live);
    for (code, same) in [
        ("Point(1, [2.5])", "again == {'x': 1, 'y': [2.5]}"),
        ("Pair(1, (2,))", "again == (1, (2,))"),
        ("[Color.RED]", "again == ['red']"),
        ("Word('a')", "again == 'a' and type(again) is str"),
        (
            "collections.OrderedDict(b=1, a=2)",
            "list(again.items()) == [('b', 1), ('a', 2)]",
        ),
        ("[memoryview(b'view')]", "again == [b'view']"),
        ("[print]", "'print' in repr(again)"),
        (
            "[Point]",
            "type(again[0]).__name__ == 'Opaque' and 'Point' in again[0].repr",
        ),
    ] {
        assert_same(&mut session, code, same);
    }
}

// More than fits in a header, so that it is sent as a separate buffer.
fn values_in_bulk(world: &World) {
    let mut session = open(world, standard().patient());
    for code in [
        "[str(n) for n in range(200000)]",
        "{n: (n, str(n)) for n in range(50000)}",
        "[b'%d' % n for n in range(5000)]",
        "['x' * 30000 for _ in range(100)]",
    ] {
        assert_same(&mut session, code, "again == given");
    }
}

fn values_of_numpy(world: &World) {
    let mut session = open(world, data_science());
    let report = run(&mut session, "import numpy as np");
    assert_ended(&report, Status::Ok, SessionState::Live);
    for code in [
        "np.arange(12.0).reshape(3, 4).T",
        "np.array(5, dtype='>i2')",
        "np.zeros((0, 3), dtype='f4')",
        "np.array([True, False])",
        "np.array([1 + 2j], dtype='c8')",
        "np.array(['a', 'longer'])",
        "np.array([b'ab', b'c'])",
        "np.array(['2024-01-01', 'NaT'], dtype='M8[ns]')",
        "np.array([1, 2], dtype='m8[25s]')",
        "np.random.default_rng(0).random(100_000)",
    ] {
        let same = "again.dtype == given.dtype and again.shape == given.shape \
                    and again.tobytes() == given.tobytes()";
        assert_same(&mut session, code, same);
    }
    for code in [
        "np.float64(1.5)",
        "np.int8(-3)",
        "np.bool_(True)",
        "np.complex64(1 - 1j)",
        "np.str_('text')",
        "np.datetime64('2024-01-01', 'D')",
    ] {
        let same = "again == given and type(again) is type(given)";
        assert_same(&mut session, code, same);
    }
}

fn values_of_pandas(world: &World) {
    let mut session = open(world, data_science());
    let imports = "import numpy as np, pandas as pd, pandas.testing";
    assert_ended(&run(&mut session, imports), Status::Ok, SessionState::Live);
    let frame = "pd.DataFrame({\
                 'i': [1, 2, 3], 'f': [0.5, np.nan, 1.5], 's': ['a', None, 'c'], 'o': [(1,), {2}, None], \
                 'b': [True, False, True], 'd': pd.date_range('2024-01-01', periods=3), \
                 'z': pd.date_range('2024-01-01', periods=3, tz='Europe/Vienna'), \
                 'c': pd.Categorical(['x', 'y', 'x'], ordered=True), \
                 'n': pd.array([1, None, 3], dtype='Int64'), \
                 't': pd.array(['p', None, 'q'], dtype='string')})";
    for code in [
        frame.to_owned(),
        format!("{frame}.set_index(['i', 's'])"),
        format!("{frame}.T"),
        "pd.DataFrame()".into(),
        "pd.DataFrame(np.zeros((1000, 3)), index=range(5, 3005, 3))".into(),
        "pd.DataFrame({('a', 1): [1], ('b', 2): [2]})".into(),
    ] {
        assert_same(
            &mut session,
            &code,
            "pandas.testing.assert_frame_equal(again, given) is None",
        );
    }
    for code in [
        "pd.Series([1, 2], name='named')",
        "pd.Series(['a', 'b'], index=['x', 'y'], name=('of', 2))",
        "pd.Series(pd.Categorical(['low', 'high']))",
    ] {
        assert_same(
            &mut session,
            code,
            "pandas.testing.assert_series_equal(again, given) is None",
        );
    }
}
