//! Calls of functions by name.

use apus_types::{collate::Collation, schema::ColumnType};
use sqlparser::ast::{self, DateTimeField, DuplicateTreatment, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::{
    Builder,
    aggregate::AggregateKind,
    operator::{as_number, exact},
    text, window,
};
use crate::{
    errors::{self, Result},
    expr::{
        CastType, ColumnRef, Expr, Kind, coercion,
        func::{self, time},
    },
    parse::dialect::MATCH,
    plan::rollup::GROUPING,
    value::{datum::Datum, decimal},
};

/// What the grammar reads like functions, beside those of [`func`], and words that may stand in front of a parenthesis.
const NATIVE: &str = " any_value if values charset collation coercibility default grouping date_add date_sub adddate subdate timestampdiff timestampadd \
    cast convert extract position substring substr mid trim char count json_value row exists in any all some and or not xor case when then else \
    between like rlike regexp div mod is select from where having on using by as distinct limit set binary return interval match against ";

/// Whether a call of this name is never one of a stored function.
pub fn is_native(name: &str) -> bool {
    let name = name.to_lowercase();
    let is = |known: &str| known == name;
    func::NAMES.iter().any(|(known, ..)| is(known))
        || NATIVE.split_ascii_whitespace().any(is)
        || AggregateKind::of_name(&name).is_some()
        || window::is_window_function(&name)
}

impl<'a> Builder<'a> {
    /// `GROUPING(key, ...)`: whose arguments are looked for among the keys when these are known.
    fn grouping(&mut self, args: &[ast::Expr]) -> Result<Expr> {
        if !self.allow_aggregates {
            return Err(errors::invalid_group_function());
        }
        if args.is_empty() {
            return Err(errors::syntax(")"));
        }
        let list = self.list(args)?;
        self.groupings.push(list);
        Ok(Expr::Aggregate(GROUPING + self.groupings.len() - 1, Kind::Int, Collation::default()))
    }

    /// `DEFAULT(column)`, of the column's type.
    fn default_of(&self, name: &str) -> Result<Expr> {
        let table = self.table.or(self.target).ok_or_else(|| errors::unknown_column(name, self.clause))?;
        let slot = table.column_no(name).ok_or_else(|| errors::unknown_column(name, self.clause))?;
        if let (Some(planner), None) = (self.functions, self.target) {
            planner.read_values(table, slot);
        }
        let column = &table.columns[usize::from(slot)];
        let value = Box::new(crate::plan::dml::default_expr(column)?);
        let to = match Kind::of(column.ty) {
            Kind::Int => CastType::Signed,
            Kind::UInt | Kind::Bit(_) => CastType::Unsigned,
            Kind::Decimal(scale) => CastType::Decimal { precision: decimal::DIGITS_MAX as u8, scale },
            Kind::Double => CastType::Double,
            Kind::Bytes => CastType::Bytes(None),
            Kind::Date => CastType::Date,
            Kind::DateTime(n) => CastType::DateTime(n),
            Kind::Time(n) => CastType::Time(n),
            Kind::Json => CastType::Json,
            Kind::Text | Kind::Label | Kind::Null => return Ok(*value),
        };
        Ok(Expr::Cast(value, to))
    }

    pub(super) fn date_add(&mut self, base: Expr, interval: &ast::Interval, subtract: bool) -> Result<Expr> {
        let unit = interval.leading_field.as_ref().map(unit_name).unwrap_or_default();
        if !time::is_unit(&unit) || interval.last_field.is_some() {
            return Err(errors::not_supported(&format!("INTERVAL ... {unit}")));
        }
        let count = self.build(&interval.value)?;
        let f = if subtract { func::Func::DateSub } else { func::Func::DateAdd };
        Ok(call(f, vec![base, count, Expr::Const(Datum::text(unit))]))
    }

    pub(super) fn function(&mut self, f: &ast::Function) -> Result<Expr> {
        let name = f.name.to_string().trim_matches('`').to_ascii_lowercase();
        if let Some(over) = &f.over {
            return self.window_function(&name, f, over);
        }
        if window::is_window_function(&name) {
            return Err(errors::syntax(&f.to_string()));
        }
        let (args, distinct, clauses) = match &f.args {
            FunctionArguments::None => (&[][..], false, &[][..]),
            FunctionArguments::List(l) => {
                (&l.args[..], l.duplicate_treatment == Some(DuplicateTreatment::Distinct), &l.clauses[..])
            }
            FunctionArguments::Subquery(_) => return Err(errors::not_supported("subqueries")),
        };
        if let Some(aggregate) = self.aggregate(&name, args, distinct, clauses)? {
            return Ok(aggregate);
        }
        let plain = |arg: &FunctionArg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Ok(e.clone()),
            _ => Err(errors::syntax(&f.to_string())),
        };
        let args = args.iter().map(plain).collect::<Result<Vec<_>>>()?;
        match (name.as_str(), &args[..]) {
            ("values", [ast::Expr::Identifier(column)]) if self.allow_values => {
                let unknown = || errors::unknown_column(&column.value, self.clause);
                if let Some(scope) = &self.scope {
                    let Some(Expr::Column(c)) = scope.column(&column.value, self.clause)? else {
                        return Err(unknown());
                    };
                    if let Some(planner) = self.planner {
                        planner.read_name(scope, &[], &column.value);
                    }
                    return Ok(Expr::NewColumn(c));
                }
                let table = self.table.ok_or_else(errors::invalid_group_function)?;
                let slot = table.column_no(&column.value).ok_or_else(unknown)?;
                if let Some(planner) = self.functions {
                    planner.read_values(table, slot);
                }
                return Ok(Expr::NewColumn(ColumnRef { slot, ty: table.columns[usize::from(slot)].ty }));
            }
            ("charset" | "collation" | "coercibility", [of]) => {
                let of = self.build(of)?;
                return Ok(self.text_property(&name, &of));
            }
            ("json_value", [_, _, _, _, _]) => return self.json_value(&args),
            (MATCH, [mode, query, columns @ ..]) => return self.match_against(mode, query, columns),
            ("grouping", _) => return self.grouping(&args),
            ("default", [ast::Expr::Identifier(column)]) => return self.default_of(&column.value),
            ("default", [ast::Expr::CompoundIdentifier(parts)]) => {
                return self.default_of(parts.last().map_or("", |p| &p.value));
            }
            ("date_add" | "adddate" | "date_sub" | "subdate", [base, ast::Expr::Interval(interval)]) => {
                let base = self.build(base)?;
                return self.date_add(base, interval, name.contains("sub"));
            }
            ("adddate" | "subdate", [base, days]) => {
                let f = if name == "subdate" { func::Func::DateSub } else { func::Func::DateAdd };
                let unit = Expr::Const(Datum::text("day"));
                return Ok(call(f, vec![self.build(base)?, self.build(days)?, unit]));
            }
            ("timestampdiff" | "timestampadd", [ast::Expr::Identifier(unit), a, b]) => {
                let unit = unit.value.to_ascii_lowercase();
                if !time::is_unit(&unit) || time::is_compound(&unit) {
                    return Err(errors::not_supported(&format!("{name} of {unit}")));
                }
                let (a, b) = (self.build(a)?, self.build(b)?);
                let unit = Expr::Const(Datum::text(unit));
                return Ok(if name == "timestampdiff" {
                    call(func::Func::TimestampDiff, vec![a, b, unit])
                } else {
                    call(func::Func::DateAdd, vec![b, a, unit])
                });
            }
            _ => {}
        }
        let Some(function) = func::lookup(&name, args.len())? else {
            return self.stored_function(f, &args);
        };
        if function.is_json() {
            return Ok(call(function, self.json_arguments(function, &args)?));
        }
        let args = self.list(&args)?;
        let args = self.read_by(function, args);
        if puts_together(function) {
            coercion::put_together(&args, &self.param_kinds, &name)?;
        }
        let args = match function {
            func::Func::Ord => self.first_encoded(args),
            _ if text::sees_bytes(function) => self.encoded(args),
            _ => self.put_together(args),
        };
        let args = if function.is_numeric() { args.into_iter().map(as_number).collect() } else { args };
        let args = self.bits_as(function, args);
        if matches!(function, func::Func::Instr | func::Func::Locate) {
            return Ok(self.looking(function, args));
        }
        if matches!(function, func::Func::NullIf | func::Func::Strcmp | func::Func::FindInSet) {
            let compared: Vec<&Expr> = args.iter().collect();
            let collation = coercion::compared(&compared, &self.param_kinds, &name)?;
            let args = match <[Expr; 2]>::try_from(args) {
                Ok([value, other]) if function == func::Func::NullIf => {
                    let value = if self.is_number(&other) { as_number(value) } else { value };
                    let other = exact(&value, other);
                    vec![value, other]
                }
                Ok(two) => two.into(),
                Err(args) => args,
            };
            return Ok(Expr::Call(function, args, collation));
        }
        Ok(self.chosen(call(function, args)))
    }

    /// Columns of BIT as what a function makes of them: numbers, or bytes whose case is none.
    fn bits_as(&self, function: func::Func, args: Vec<Expr>) -> Vec<Expr> {
        use func::Func;
        let is_bits = |e: &Expr| matches!(e.kind(&self.param_kinds), Kind::Bit(_) | Kind::Null);
        let to = match function {
            Func::Upper | Func::Lower => CastType::Bytes(None),
            Func::Bin | Func::Oct | Func::Conv => CastType::Unsigned,
            Func::Coalesce | Func::IfNull | Func::Greatest | Func::Least if args.iter().all(is_bits) => {
                CastType::Unsigned
            }
            _ if function.is_numeric() => CastType::Unsigned,
            _ => return args,
        };
        let cast = |e: Expr| match e.kind(&self.param_kinds) {
            Kind::Bit(_) => Expr::Cast(Box::new(e), to),
            _ => e,
        };
        args.into_iter().map(cast).collect()
    }

    /// An expression that chooses among numbers of several kinds gives them the kind that holds all.
    pub(super) fn chosen(&self, e: Expr) -> Expr {
        use func::Func;
        let (choices, scaled): (Vec<&Expr>, bool) = match &e {
            Expr::Case { whens, otherwise, .. } => {
                (whens.iter().map(|(_, then)| then).chain(otherwise.as_deref()).collect(), false)
            }
            Expr::Call(Func::If, args, _) => (args[1..].iter().collect(), false),
            Expr::Call(Func::IfNull | Func::Coalesce | Func::Greatest | Func::Least, args, _) => {
                (args.iter().collect(), true)
            }
            _ => return e,
        };
        let kind = e.kind(&self.param_kinds);
        let is_mixed = choices.iter().any(|c| !matches!(c.kind(&self.param_kinds), k if k == kind || k == Kind::Null));
        match kind {
            Kind::Double | Kind::Decimal(_) if is_mixed => Expr::Cast(Box::new(e), CastType::Chosen { kind, scaled }),
            // A time is one of today.
            Kind::DateTime(n) if is_mixed => Expr::Cast(Box::new(e), CastType::DateTime(n)),
            _ => e,
        }
    }
}

pub(super) fn call(f: func::Func, mut args: Vec<Expr>) -> Expr {
    args.iter_mut().take(time::moments(f)).for_each(|e| *e = as_moment(std::mem::replace(e, Expr::Const(Datum::Null))));
    let collation = coercion::carried(&args, &[]);
    Expr::Call(f, args, collation)
}

/// What is wanted as a moment: of a column of years their beginning.
pub(super) fn as_moment(e: Expr) -> Expr {
    match e.column_type() {
        Some(ColumnType::Year) => Expr::Cast(Box::new(e), CastType::NewYear),
        _ => e,
    }
}

/// The column of a TEXT where a number is wanted: what of it is none is not warned of, in MySQL.
pub fn quiet_number(e: Expr) -> Expr {
    match e.column_type() {
        Some(ColumnType::Text { .. }) => Expr::Cast(Box::new(e), CastType::Quiet),
        _ => e,
    }
}

pub(super) fn unit_name(field: &DateTimeField) -> String {
    field.to_string().to_ascii_lowercase()
}

/// Its texts become one, whose character set they have to agree on.
fn puts_together(f: func::Func) -> bool {
    use func::Func::*;
    matches!(f, Concat | ConcatWs | Coalesce | IfNull | Replace | LPad | RPad | Insert | MakeSet | Greatest | Least)
}
