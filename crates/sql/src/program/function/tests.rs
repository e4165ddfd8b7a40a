//! Tests of `program::function`.

use super::{
    calls::{Calls, unanswered},
    *,
};
use crate::{
    expr::{Env, Kind as ExprKind},
    program::routine::{self, Definition},
};
use apus_types::RowLayout;

fn env() -> Env {
    Env::new("root".into(), "localhost".into(), 7, 1, Default::default())
}

fn function(name: &str, body: &str) -> Rc<Routine> {
    let definition = Definition {
        kind: Kind::Function,
        name: name.to_owned(),
        parameters: "a INT".to_owned(),
        returns: "INT".to_owned(),
        body: body.to_owned(),
        ..Definition::default()
    };
    routine::Routine::of_no_dictionary("d", definition)
}

fn call(body: &str) -> Stored {
    let routine = function("f", body);
    let is_reading = is_reading(&Catalog::default(), &routine);
    let ty = ColumnType::Int { bits: 32, unsigned: false };
    Stored { routine, ty, heading: "f(1)".to_owned(), is_reading, view: None }
}

fn ask(env: &Env, stored: &Stored, argument: i64) -> Result<Datum<'static>> {
    let layout = RowLayout::new([]);
    let cx = Context { layout: &layout, row: &[], new_row: None, params: &[], aggregates: &[], given: &[], env };
    eval(stored, &[Expr::Const(Datum::Int(argument))], &cx)
}

/// Answers what a run has wanted by a count of the answers.
fn answer(env: &Env, count: &mut i64) -> usize {
    let mut calls = env.stored.borrow_mut();
    let wanted = std::mem::take(&mut calls.wanted);
    let all = wanted.len();
    for Wanted { key, stored, .. } in wanted {
        *count += 1;
        calls.answer(key, &stored, Ok(Answer { value: Datum::Int(*count), warnings: Vec::new() })).unwrap();
    }
    calls.begin_run();
    all
}

#[test]
fn a_function_that_reads_is_asked_once_for_the_same_arguments() {
    let (env, stored, mut count) = (env(), call("RETURN (SELECT COUNT(*) FROM t WHERE b = a)"), 0);
    assert!(stored.is_reading && Expr::Stored(Box::new(stored.clone()), Vec::new()).is_constant());
    assert_eq!(Expr::Stored(Box::new(stored.clone()), Vec::new()).kind(&[]), ExprKind::Int);
    let asked: Vec<_> = [1, 2, 1].into_iter().map(|n| ask(&env, &stored, n).unwrap()).collect();
    assert!(asked.iter().all(Datum::is_null) && env.is_wanting());
    assert_eq!(answer(&env, &mut count), 3);
    let asked: Vec<_> = [1, 2, 1].into_iter().map(|n| ask(&env, &stored, n).unwrap()).collect();
    assert_eq!(asked, [Datum::Int(1), Datum::Int(2), Datum::Int(1)]);
    assert!(!env.is_wanting());
}

#[test]
fn a_function_that_does_more_is_asked_for_each_call_in_turn() {
    let (env, stored, mut count) = (env(), call("BEGIN INSERT INTO t VALUES (a); RETURN a; END"), 0);
    assert!(!stored.is_reading);
    for known in 0..3 {
        for n in 1..=known {
            assert_eq!(ask(&env, &stored, 7).unwrap(), Datum::Int(n));
        }
        assert!(ask(&env, &stored, 7).is_err(), "the run ends");
        assert_eq!(answer(&env, &mut count), 1);
    }
    let mark = env.stored.borrow().mark();
    assert_eq!(ask(&env, &stored, 7).unwrap(), Datum::Int(1));
    env.stored.borrow_mut().go_back(&mark);
    assert_eq!(ask(&env, &stored, 7).unwrap(), Datum::Int(1), "again");
    let refused = |calls: &mut Calls| calls.answer(vec![1], &stored, Err(unanswered())).map_err(|e| e.errno);
    let mut calls = env.stored.borrow_mut();
    let all = (0..CALLS_IN_TURN_MAX).find_map(|_| refused(&mut calls).err());
    assert_eq!(all, Some(1235));
}

#[test]
fn what_only_reads() {
    let reads = |body: &str| is_reading(&Catalog::default(), &function("f", body));
    assert!(reads("RETURN a * 2") && reads("BEGIN DECLARE b INT; SELECT MAX(c) INTO b FROM t; RETURN b; END"));
    assert!(reads("BEGIN DECLARE c CURSOR FOR SELECT 1; OPEN c; CLOSE c; RETURN NOW(); END"));
    for body in [
        "BEGIN SET @x = 1; RETURN 1; END",
        "RETURN @x",
        "RETURN RAND()",
        "RETURN (SELECT COUNT(*) FROM t WHERE id = LAST_INSERT_ID())",
        "BEGIN DELETE FROM t; RETURN 1; END",
        "BEGIN CALL p(); RETURN 1; END",
        "BEGIN SELECT 1 INTO @x; RETURN 1; END",
        "RETURN (SELECT a FROM t FOR UPDATE)",
    ] {
        assert!(!reads(body), "{body}");
    }
}
