//! Aggregates: which there are, and how a call of one is read.

use apus_types::collate::Collation;
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArgumentClause};

use super::{Builder, full_text::SEARCH, function::call, json_truth};
use crate::{
    errors::{self, Result},
    expr::{Expr, Kind, coercion::collation_of, func::Func},
    full_text::query::Mode,
    plan::select::{OrderKey, order_key},
    value::decimal,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregateKind {
    Count,
    CountRows,
    Sum,
    Min,
    Max,
    Avg,
    GroupConcat,
    /// Of the values themselves, or (`sample`) estimated for what they are a sample of.
    Variance {
        sample: bool,
    },
    Deviation {
        sample: bool,
    },
    BitAnd,
    BitOr,
    BitXor,
    /// JSON_ARRAYAGG and JSON_OBJECTAGG: of arrays of one element, and of objects of one member.
    JsonArray,
    JsonObject,
    /// The ranks of the rows that MATCH ... AGAINST finds.
    Search(Mode),
}

impl AggregateKind {
    pub fn of_name(name: &str) -> Option<AggregateKind> {
        Some(match name {
            "count" => AggregateKind::Count,
            "sum" => AggregateKind::Sum,
            "min" => AggregateKind::Min,
            "max" => AggregateKind::Max,
            "avg" => AggregateKind::Avg,
            "group_concat" => AggregateKind::GroupConcat,
            "std" | "stddev" | "stddev_pop" => AggregateKind::Deviation { sample: false },
            "stddev_samp" => AggregateKind::Deviation { sample: true },
            "variance" | "var_pop" => AggregateKind::Variance { sample: false },
            "var_samp" => AggregateKind::Variance { sample: true },
            "bit_and" => AggregateKind::BitAnd,
            "bit_or" => AggregateKind::BitOr,
            "bit_xor" => AggregateKind::BitXor,
            "json_arrayagg" => AggregateKind::JsonArray,
            "json_objectagg" => AggregateKind::JsonObject,
            _ => return None,
        })
    }

    /// As EXPLAIN writes it.
    pub fn name(self) -> &'static str {
        match self {
            AggregateKind::Count | AggregateKind::CountRows => "count",
            AggregateKind::Sum => "sum",
            AggregateKind::Min => "min",
            AggregateKind::Max => "max",
            AggregateKind::Avg => "avg",
            AggregateKind::GroupConcat => "group_concat",
            AggregateKind::Variance { sample: false } => "variance",
            AggregateKind::Variance { sample: true } => "var_samp",
            AggregateKind::Deviation { sample: false } => "std",
            AggregateKind::Deviation { sample: true } => "stddev_samp",
            AggregateKind::BitAnd => "bit_and",
            AggregateKind::BitOr => "bit_or",
            AggregateKind::BitXor => "bit_xor",
            AggregateKind::JsonArray => "json_arrayagg",
            AggregateKind::JsonObject => "json_objectagg",
            AggregateKind::Search(_) => "match",
        }
    }

    /// Of the result, `of` being that of the argument.
    pub(super) fn kind(self, of: Kind) -> Kind {
        let of = of.of_result();
        match self {
            AggregateKind::Count | AggregateKind::CountRows => Kind::Int,
            AggregateKind::Min | AggregateKind::Max => of,
            AggregateKind::GroupConcat if of == Kind::Bytes => Kind::Bytes,
            AggregateKind::GroupConcat => Kind::Text,
            AggregateKind::Sum => match of {
                Kind::Int | Kind::UInt | Kind::Bit(_) | Kind::Null | Kind::Date => Kind::Decimal(0),
                Kind::Decimal(s) | Kind::DateTime(s) | Kind::Time(s) => Kind::Decimal(s),
                _ => Kind::Double,
            },
            AggregateKind::Avg => match of {
                Kind::Int | Kind::UInt | Kind::Bit(_) | Kind::Null | Kind::Date => {
                    Kind::Decimal(decimal::DIVISION_DIGITS)
                }
                Kind::Decimal(s) | Kind::DateTime(s) | Kind::Time(s) => {
                    Kind::Decimal((s + decimal::DIVISION_DIGITS).min(decimal::SCALE_MAX))
                }
                _ => Kind::Double,
            },
            AggregateKind::Variance { .. } | AggregateKind::Deviation { .. } => Kind::Double,
            AggregateKind::BitAnd | AggregateKind::BitOr | AggregateKind::BitXor => Kind::UInt,
            AggregateKind::JsonArray | AggregateKind::JsonObject => Kind::Json,
            AggregateKind::Search(_) => Kind::Bytes,
        }
    }
}

/// One aggregate of a SELECT.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    pub function: AggregateKind,
    pub distinct: bool,
    /// `None` for COUNT(*).
    pub argument: Option<Expr>,
    pub kind: Kind,
    pub separator: Vec<u8>,
    /// Of GROUP_CONCAT.
    pub order: Vec<OrderKey>,
    pub collation: Collation,
}

/// `ANY_VALUE(e)`: as `e`, and nobody asks whether a group has one value of it.
fn any_value(e: Expr) -> Expr {
    let collation = collation_of(&e, &[]);
    Expr::Case { operand: None, whens: Vec::new(), otherwise: Some(Box::new(e)), collation }
}

/// Whether this is an ANY_VALUE().
pub fn is_any_value(e: &Expr) -> bool {
    matches!(e, Expr::Case { whens, .. } if whens.is_empty())
}

impl Builder<'_> {
    /// The call of an aggregate; `None` when `name` is none.
    pub(super) fn aggregate(
        &mut self,
        name: &str,
        args: &[FunctionArg],
        distinct: bool,
        clauses: &[FunctionArgumentClause],
    ) -> Result<Option<Expr>> {
        if let ("any_value", [FunctionArg::Unnamed(FunctionArgExpr::Expr(e))]) = (name, args) {
            return Ok(Some(any_value(self.build(e)?)));
        }
        if name == SEARCH {
            return self.search(args).map(Some);
        }
        let Some(function) = AggregateKind::of_name(name) else { return Ok(None) };
        let is_allowed = std::mem::take(&mut self.allow_aggregates);
        let precedence = std::mem::take(&mut self.precedence);
        let place = std::mem::take(&mut self.window_place);
        let before = self.planner.map(|planner| planner.frames.given());
        let parts = self.aggregate_parts(function, name, args, distinct, clauses);
        (self.allow_aggregates, self.window_place) = (is_allowed, place);
        self.precedence = precedence;
        let (argument, separator, order) = parts?;
        if let Some((planner, before)) = self.planner.zip(before)
            && let Some((aggregate, out)) =
                self.aggregate_around(function, distinct, (&argument, &separator, &order))?
        {
            // Its argument is taken by the query around, and need not be given to this one.
            planner.frames.give_up(&before);
            return planner.frames.ask(aggregate, out).map(Some);
        }
        if !is_allowed {
            return Err(errors::invalid_group_function());
        }
        let aggregate = self.as_aggregate(function, distinct, argument, separator, order)?;
        let (kind, collation) = (aggregate.kind, aggregate.collation);
        Ok(Some(Expr::Aggregate(self.number_of(aggregate), kind, collation)))
    }

    /// An aggregate whose columns are all of a query around, and how many queries further out that is; `None` where no aggregate may stand there, so that it is one of this query.
    fn aggregate_around(
        &self,
        function: AggregateKind,
        distinct: bool,
        (argument, separator, order): (&Option<Expr>, &[u8], &[OrderKey]),
    ) -> Result<Option<(Aggregate, usize)>> {
        let is_over_rows = |e: &Expr| e.any(|e| matches!(e, Expr::Column(_)));
        let is_given = |e: &Expr| !is_over_rows(e) && e.any(|e| matches!(e, Expr::Given(..)));
        let Some(frames) = self.planner.map(|planner| &planner.frames).filter(|frames| !frames.is_lateral()) else {
            return Ok(None);
        };
        let Some(mut outer) = argument.clone().filter(is_given) else { return Ok(None) };
        let (mut keys, mut out) = (order.to_vec(), 0);
        while is_given(&outer) {
            let Some(e) = frames.outward(&outer, out) else { return Ok(None) };
            outer = e;
            for key in &mut keys {
                match frames.outward(&key.expr, out).filter(|_| !is_over_rows(&key.expr)) {
                    Some(e) => key.expr = e,
                    None => return Err(errors::not_supported("an aggregate of a query around, ordered by this one")),
                }
            }
            out += 1;
        }
        if !frames.takes_aggregates(out) {
            return Ok(None);
        }
        let aggregate = self.as_aggregate(function, distinct, Some(outer), separator.to_vec(), keys)?;
        Ok(Some((aggregate, out)))
    }

    /// The place of an aggregate among those of the block.
    pub(super) fn number_of(&mut self, aggregate: Aggregate) -> usize {
        self.aggregates.iter().position(|a| *a == aggregate).unwrap_or_else(|| {
            self.aggregates.push(aggregate);
            self.aggregates.len() - 1
        })
    }

    /// Argument (none for COUNT(*)), separator and order.
    pub(super) fn aggregate_parts(
        &mut self,
        function: AggregateKind,
        name: &str,
        args: &[FunctionArg],
        distinct: bool,
        clauses: &[FunctionArgumentClause],
    ) -> Result<(Option<Expr>, Vec<u8>, Vec<OrderKey>)> {
        let (mut separator, mut order) = (b",".to_vec(), Vec::new());
        for clause in clauses {
            match (clause, function) {
                (FunctionArgumentClause::Separator(v), AggregateKind::GroupConcat) => match &v.value {
                    ast::Value::SingleQuotedString(s) | ast::Value::DoubleQuotedString(s) => {
                        separator = s.clone().into_bytes()
                    }
                    _ => return Err(errors::not_supported("SEPARATOR that is not a literal")),
                },
                (FunctionArgumentClause::OrderBy(list), AggregateKind::GroupConcat) => {
                    for e in list {
                        let expr = self.build(&e.expr)?;
                        if matches!(expr, Expr::Const(_) | Expr::Param(_)) {
                            return Err(errors::not_supported("ORDER BY of a position in GROUP_CONCAT"));
                        }
                        let descending = matches!(e.options.sort, Some(ast::OrderBySort::Desc));
                        order.push(order_key(expr, descending, &self.param_kinds));
                    }
                }
                _ => return Err(errors::not_supported("this clause of an aggregate")),
            }
        }
        if let [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] = args
            && function == AggregateKind::Count
            && !distinct
        {
            return Ok((None, separator, order));
        }
        let is_json = matches!(function, AggregateKind::JsonArray | AggregateKind::JsonObject);
        let mut list = Vec::with_capacity(args.len());
        for arg in args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = arg else { return Err(errors::syntax(name)) };
            let built = self.build(e)?;
            list.push(if is_json { json_truth(e, built) } else { built });
        }
        let argument = match (list.len(), function) {
            (1, AggregateKind::JsonArray) if !distinct => call(Func::JsonArray, list),
            (2, AggregateKind::JsonObject) if !distinct => {
                list[0] = self.as_text(list[0].clone());
                call(Func::JsonObject, list)
            }
            (1, AggregateKind::GroupConcat) if self.face_of(&list[0]).is_some() => self.as_text(list.remove(0)),
            (_, AggregateKind::JsonArray | AggregateKind::JsonObject) => return Err(errors::syntax(name)),
            (1, _) => list.remove(0),
            (2.., AggregateKind::GroupConcat) => call(Func::Concat, self.put_together(self.texts(list))),
            // A combination with a NULL in it does not count.
            (2.., AggregateKind::Count) if distinct => call(Func::RowKey, list),
            _ => return Err(errors::syntax(name)),
        };
        // COUNT(1) is COUNT(*).
        let is_all =
            function == AggregateKind::Count && !distinct && matches!(&argument, Expr::Const(d) if !d.is_null());
        Ok(((!is_all).then_some(argument), separator, order))
    }
}
