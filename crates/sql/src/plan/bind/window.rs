//! Calls of window functions, and the windows that they name.

use sqlparser::ast::{
    self, DuplicateTreatment, FunctionArg, FunctionArgExpr, FunctionArguments, NamedWindowExpr, NullTreatment,
    WindowFrameBound, WindowFrameUnits, WindowType,
};

use super::{Aggregate, AggregateKind, Builder, CastType, Datum, Expr, Kind};
use crate::{
    errors::{self, Result},
    expr::coercion::collation_of,
    plan::{
        select::{OrderKey, order_key},
        window::{Bound, Call, Frame, Function, WINDOW, Window},
    },
    wire::SqlError,
};
use crate::{expr::ArithOp, value::decimal};

const UNNAMED: &str = "<unnamed window>";

/// Whether a window function may stand somewhere.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum WindowPlace {
    #[default]
    Nowhere,
    Here,
    /// In the definition of the window of this name.
    InWindow(String),
}

fn of_window(errno: u16, name: &str, words: &str) -> SqlError {
    SqlError::new(errno, b"HY000", format!("Window '{name}'{words}"))
}
fn wrong_bound(name: &str) -> SqlError {
    of_window(3586, name, ": frame start or end is negative, NULL or of non-integral type")
}

/// What is known of a function by its name alone.
fn shape_of(name: &str) -> Option<(Function, std::ops::RangeInclusive<usize>)> {
    let unset = || Expr::Const(Datum::Null);
    let shifted = |back| Function::Shifted { back, by: None, otherwise: None };
    Some(match name {
        "row_number" => (Function::RowNumber, 0..=0),
        "rank" => (Function::Rank, 0..=0),
        "dense_rank" => (Function::DenseRank, 0..=0),
        "percent_rank" => (Function::PercentRank, 0..=0),
        "cume_dist" => (Function::CumeDist, 0..=0),
        "ntile" => (Function::Ntile(unset()), 1..=1),
        "lag" => (shifted(true), 1..=3),
        "lead" => (shifted(false), 1..=3),
        "first_value" => (Function::First, 1..=1),
        "last_value" => (Function::Last, 1..=1),
        "nth_value" => (Function::Nth(unset()), 2..=2),
        _ => return None,
    })
}

/// Whether a function is nothing without a window.
pub fn is_window_function(name: &str) -> bool {
    shape_of(name).is_some()
}

impl Builder<'_> {
    pub(super) fn window_function(&mut self, name: &str, f: &ast::Function, over: &WindowType) -> Result<Expr> {
        match &self.window_place {
            WindowPlace::Here => {}
            WindowPlace::Nowhere => {
                let words = format!("You cannot use the window function '{name}' in this context.'");
                return Err(SqlError::new(3593, b"HY000", words));
            }
            WindowPlace::InWindow(window) => {
                let words = format!("You cannot nest a window function in the specification of window '{window}'.");
                return Err(SqlError::new(3595, b"HY000", words));
            }
        }
        if f.null_treatment == Some(NullTreatment::IgnoreNulls) {
            return Err(errors::not_supported("IGNORE NULLS"));
        }
        let FunctionArguments::List(list) = &f.args else { return Err(errors::syntax(name)) };
        if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
            return Err(errors::not_supported("<window function>(DISTINCT ..)"));
        }
        self.window_place = WindowPlace::Nowhere;
        let call = self.window_call(name, &list.args);
        self.window_place = WindowPlace::Here;
        let (function, argument, kind) = call?;
        let window = match over {
            WindowType::NamedWindow(name) => self.named_window(&name.value, &mut Vec::new())?,
            WindowType::WindowSpec(spec) => self.window(spec, UNNAMED, &mut Vec::new())?,
        };
        let known = self.windows.list.iter().position(|w| *w == window);
        let window = known.unwrap_or_else(|| {
            self.windows.list.push(window);
            self.windows.list.len() - 1
        });
        let shown = match &function {
            Function::Aggregate(a) => a.argument.as_ref(),
            _ => argument.as_ref(),
        };
        let collation = shown.map_or_else(Default::default, |e| collation_of(e, &self.param_kinds));
        let call = Call { function, argument, window };
        let known = self.windows.calls.iter().position(|c| *c == call);
        let at = known.unwrap_or_else(|| {
            self.windows.calls.push(call);
            self.windows.calls.len() - 1
        });
        Ok(Expr::Aggregate(WINDOW + at, kind, collation))
    }

    fn window_call(&mut self, name: &str, args: &[FunctionArg]) -> Result<(Function, Option<Expr>, Kind)> {
        let Some((mut function, count)) = shape_of(name) else { return self.window_aggregate(name, args) };
        if !count.contains(&args.len()) {
            return Err(errors::syntax(")"));
        }
        let mut list = Vec::with_capacity(args.len());
        for arg in args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = arg else { return Err(errors::syntax(name)) };
            list.push(e);
        }
        let argument = match &function {
            Function::Ntile(_) => None,
            _ => list.first().map(|e| self.build(e)).transpose()?,
        };
        let mut kind = argument.as_ref().map_or(Kind::UInt, |e| e.kind(&self.param_kinds));
        match &mut function {
            Function::PercentRank | Function::CumeDist => kind = Kind::Double,
            Function::Ntile(count) => *count = self.whole_number(list[0], "ntile", 1)?,
            // The one whose argument may be any constant, which is looked at later.
            Function::Nth(at) => *at = self.constant(list[1], "nth_value")?,
            Function::Shifted { by, otherwise, .. } => {
                *by = list.get(1).map(|e| self.whole_number(e, name, 0)).transpose()?;
                *otherwise = list.get(2).map(|e| self.build(e)).transpose()?;
                kind = otherwise.iter().fold(kind, |kind, e| kind.unify(e.kind(&self.param_kinds)));
            }
            _ => {}
        }
        Ok((function, argument, kind))
    }

    fn window_aggregate(&mut self, name: &str, args: &[FunctionArg]) -> Result<(Function, Option<Expr>, Kind)> {
        let function = AggregateKind::of_name(name).ok_or_else(|| errors::syntax("OVER"))?;
        if function == AggregateKind::GroupConcat {
            return Err(errors::not_supported("group_concat as window function"));
        }
        let (argument, separator, order) = self.aggregate_parts(function, name, args, false, &[])?;
        let aggregate = self.as_aggregate(function, false, argument, separator, order)?;
        let kind = aggregate.kind;
        Ok((Function::Aggregate(aggregate), None, kind))
    }

    /// A literal, parameter or variable.
    fn constant(&mut self, e: &ast::Expr, function: &str) -> Result<Expr> {
        let built = self.build(e)?;
        let is_wrong = |d: &Datum<'_>| !matches!(d, Datum::Int(1..) | Datum::UInt(1..));
        if !built.is_constant() || matches!(&built, Expr::Const(d) if is_wrong(d)) {
            return Err(errors::wrong_arguments(function));
        }
        Ok(built)
    }

    /// As [`Builder::constant`], for places where the grammar lets nothing else stand.
    fn whole_number(&mut self, e: &ast::Expr, function: &str, least: i64) -> Result<Expr> {
        if let ast::Expr::Identifier(name) = e
            && !name.value.starts_with('@')
        {
            return Err(errors::undeclared_variable(&name.value));
        }
        let (ast::Expr::Value(_) | ast::Expr::Identifier(_)) = e else { return Err(errors::syntax(&e.to_string())) };
        let built = self.build(e)?;
        match &built {
            Expr::Const(Datum::Int(n)) if *n < least => Err(errors::wrong_arguments(function)),
            Expr::Const(Datum::Int(_) | Datum::UInt(_)) | Expr::Param(_) | Expr::UserVariable(..) => Ok(built),
            _ => Err(errors::syntax(&e.to_string())),
        }
    }

    /// Binds all windows that have names, also those that nothing uses.
    ///
    /// # Errors
    /// 3591, and what is wrong in one.
    pub(crate) fn check_named_windows(&mut self) -> Result<()> {
        let names: Vec<String> = self.named_windows.iter().map(|w| w.0.value.clone()).collect();
        for (at, name) in names.iter().enumerate() {
            if names[..at].iter().any(|other| other.eq_ignore_ascii_case(name)) {
                return Err(of_window(3591, name, " is defined twice."));
            }
        }
        names.iter().try_for_each(|name| self.named_window(name, &mut Vec::new()).map(drop))
    }

    /// `trail`: names that led here.
    fn named_window(&mut self, name: &str, trail: &mut Vec<String>) -> Result<Window> {
        let found = self.named_windows.iter().find(|w| w.0.value.eq_ignore_ascii_case(name));
        let Some(ast::NamedWindowDefinition(own, NamedWindowExpr::WindowSpec(spec))) = found.cloned() else {
            return Err(SqlError::new(3579, b"HY000", format!("Window name '{name}' is not defined.")));
        };
        if trail.iter().any(|passed| passed.eq_ignore_ascii_case(name)) {
            let words = "There is a circularity in the window dependency graph.";
            return Err(SqlError::new(3580, b"HY000", words));
        }
        trail.push(name.to_owned());
        self.window(&spec, &own.value, trail)
    }

    fn window(&mut self, spec: &ast::WindowSpec, name: &str, trail: &mut Vec<String>) -> Result<Window> {
        let base = match &spec.window_name {
            Some(base) => Some((base.value.clone(), self.named_window(&base.value, trail)?)),
            None => None,
        };
        if base.is_some() && !spec.partition_by.is_empty() {
            let words = "A window which depends on another cannot define partitioning.";
            return Err(SqlError::new(3581, b"HY000", words));
        }
        let mut window = Window { name: name.to_owned(), partition: Vec::new(), order: Vec::new(), frame: None };
        if let Some((base, of)) = base {
            if of.frame.is_some() {
                let words = " has a frame definition, so cannot be referenced by another window.";
                return Err(of_window(3582, &base, words));
            }
            if !of.order.is_empty() && !spec.order_by.is_empty() {
                let words = format!(" cannot inherit '{base}' since both contain an ORDER BY clause.");
                return Err(of_window(3583, name, &words));
            }
            (window.partition, window.order) = (of.partition, of.order);
        }
        let place = std::mem::replace(&mut self.window_place, WindowPlace::InWindow(name.to_owned()));
        let clause = self.clause;
        let keys = self.window_keys(spec, name, &mut window);
        (self.window_place, self.clause) = (place, clause);
        keys?;
        if let Some(frame) = &spec.window_frame {
            window.frame = Some(self.frame(frame, &window)?);
        }
        Ok(window)
    }

    fn window_keys(&mut self, spec: &ast::WindowSpec, name: &str, window: &mut Window) -> Result<()> {
        let aliases = std::mem::take(&mut self.aliases);
        self.clause = "window partition by";
        let mut partition = Vec::with_capacity(spec.partition_by.len());
        for e in &spec.partition_by {
            partition.push(self.window_key(e, false, name)?);
        }
        self.clause = "window order by";
        let mut order = Vec::with_capacity(spec.order_by.len());
        for e in &spec.order_by {
            let descending = matches!(e.options.sort, Some(ast::OrderBySort::Desc));
            order.push(self.window_key(&e.expr, descending, name)?);
        }
        self.aliases = aliases;
        if window.partition.is_empty() {
            window.partition = partition;
        }
        if window.order.is_empty() {
            window.order = order;
        }
        Ok(())
    }

    fn window_key(&mut self, e: &ast::Expr, descending: bool, name: &str) -> Result<OrderKey> {
        let expr = self.build(e)?;
        if matches!(e, ast::Expr::Value(_)) && matches!(expr, Expr::Const(Datum::Int(_) | Datum::UInt(_))) {
            let words =
                ": ORDER BY or PARTITION BY uses legacy position indication which is not supported, use expression.";
            return Err(of_window(3592, name, words));
        }
        Ok(order_key(expr, descending, &self.param_kinds))
    }

    fn frame(&mut self, frame: &ast::WindowFrame, window: &Window) -> Result<Frame> {
        use WindowFrameBound as B;
        let is_rows = match frame.units {
            WindowFrameUnits::Rows => true,
            WindowFrameUnits::Range => false,
            WindowFrameUnits::Groups => return Err(errors::not_supported("GROUPS")),
        };
        let name = &window.name;
        let end = frame.end_bound.as_ref().unwrap_or(&B::CurrentRow);
        match (&frame.start_bound, end) {
            (B::Following(_), _) if frame.end_bound.is_none() => return Err(errors::syntax("FOLLOWING")),
            (B::Following(None), _) => {
                return Err(of_window(3584, name, ": frame start cannot be UNBOUNDED FOLLOWING."));
            }
            (_, B::Preceding(None)) => {
                return Err(of_window(3585, name, ": frame end cannot be UNBOUNDED PRECEDING."));
            }
            (B::Following(_), B::CurrentRow | B::Preceding(_)) | (B::CurrentRow, B::Preceding(_)) => {
                return Err(wrong_bound(name));
            }
            _ => {}
        }
        let start = self.frame_bound(&frame.start_bound, is_rows, window)?;
        let end = self.frame_bound(end, is_rows, window)?;
        Ok(Frame { is_rows, start, end })
    }

    fn frame_bound(&mut self, bound: &WindowFrameBound, is_rows: bool, window: &Window) -> Result<Bound> {
        let (distance, preceding) = match bound {
            WindowFrameBound::CurrentRow => return Ok(Bound::CurrentRow),
            WindowFrameBound::Preceding(None) | WindowFrameBound::Following(None) => return Ok(Bound::Partition),
            WindowFrameBound::Preceding(Some(e)) => (&**e, true),
            WindowFrameBound::Following(Some(e)) => (&**e, false),
        };
        let name = &window.name;
        let is_interval = matches!(distance, ast::Expr::Interval(_));
        if is_interval && is_rows {
            return Err(of_window(3596, name, ": INTERVAL can only be used with RANGE frames."));
        }
        let is_number = |e: &ast::Expr| match e {
            ast::Expr::Value(v) => matches!(v.value, ast::Value::Number(..) | ast::Value::Placeholder(_)),
            _ => false,
        };
        if !is_interval && !is_number(distance) {
            return Err(errors::syntax(&distance.to_string()));
        }
        if is_rows {
            let count = self.build(distance)?;
            return match count {
                Expr::Const(Datum::Int(_) | Datum::UInt(_)) | Expr::Param(_) => Ok(Bound::Rows { count, preceding }),
                _ => Err(wrong_bound(name)),
            };
        }
        let key = match window.order.as_slice() {
            [one] if one.kind.is_temporal() || is_numeric(one.kind) => one,
            _ => {
                let words = " with RANGE N PRECEDING/FOLLOWING frame requires exactly one deterministic ORDER BY expression, of numeric or temporal type";
                return Err(of_window(3587, name, words));
            }
        };
        let subtract = preceding != key.descending;
        let (value, distance) = match distance {
            ast::Expr::Interval(interval) if key.kind.is_temporal() => {
                let distance = self.build(&interval.value)?;
                if matches!(&distance, Expr::Const(d) if d.number().is_none_or(|n| n.to_f64() < 0.0)) {
                    return Err(wrong_bound(name));
                }
                (self.date_add(key.expr.clone(), interval, subtract)?, distance)
            }
            ast::Expr::Interval(_) => {
                let words =
                    " with RANGE frame has ORDER BY expression of numeric type, INTERVAL bound value not allowed.";
                return Err(of_window(3589, name, words));
            }
            _ if key.kind.is_temporal() => {
                let words =
                    " with RANGE frame has ORDER BY expression of datetime type. Only INTERVAL bound value allowed.";
                return Err(of_window(3588, name, words));
            }
            e => {
                let distance = self.build(e)?;
                (at_distance(key, &distance, subtract), distance)
            }
        };
        Ok(Bound::Value { value, distance, preceding })
    }

    pub(super) fn as_aggregate(
        &self,
        function: AggregateKind,
        distinct: bool,
        argument: Option<Expr>,
        separator: Vec<u8>,
        order: Vec<OrderKey>,
    ) -> Result<Aggregate> {
        let function = if argument.is_none() { AggregateKind::CountRows } else { function };
        let of = argument.as_ref().map_or(Kind::Int, |e| e.kind(&self.param_kinds));
        let bits = matches!(function, AggregateKind::BitAnd | AggregateKind::BitOr | AggregateKind::BitXor);
        if bits && of == Kind::Bytes {
            return Err(errors::not_supported("bit aggregates of binary texts"));
        }
        let kind = function.kind(of);
        let collation = argument.as_ref().map_or_else(Default::default, |e| collation_of(e, &self.param_kinds));
        Ok(Aggregate { function, distinct, argument, kind, separator, order, collation })
    }
}

fn is_numeric(kind: Kind) -> bool {
    matches!(kind, Kind::Int | Kind::UInt | Kind::Decimal(_) | Kind::Double | Kind::Bit(_))
}

/// The value that is so far away from that of the current row; of integers as a DECIMAL, which has room for it.
fn at_distance(key: &OrderKey, distance: &Expr, subtract: bool) -> Expr {
    let wide = CastType::Decimal { precision: decimal::DIGITS_MAX as u8, scale: 0 };
    let from = match key.kind {
        Kind::Int | Kind::UInt | Kind::Bit(_) => Expr::Cast(Box::new(key.expr.clone()), wide),
        _ => key.expr.clone(),
    };
    let op = if subtract { ArithOp::Sub } else { ArithOp::Add };
    Expr::Arith(op, Box::new(from), Box::new(distance.clone()))
}
