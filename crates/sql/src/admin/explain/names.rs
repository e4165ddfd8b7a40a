//! Expressions of a plan as EXPLAIN writes them.
//!
//! A planned expression names columns by their places in the row that it is evaluated over, so whoever prints it says what stands there.

use std::collections::BTreeSet;

use crate::{
    expr::{ArithOp, CompareOp, Expr},
    plan::{
        access::{Interval, Path, listed::Listed},
        pushed_condition::{Pushed, Test},
        rules::{functional, lists::Sought},
        select::{Group, OrderKey},
    },
    value::{bits, datum::Datum},
};
use apus_types::TableSchema;

/// What stands at a place of a row, or is given.
#[derive(Clone, Default, Debug)]
pub struct Name {
    /// In conditions.
    pub text: String,
    /// In lists of columns; empty: it is none.
    pub listed: String,
    /// Where keys are looked up by it.
    pub reference: String,
}

/// The reference of what is the same for all lookups, and of what is computed for them.
const CONSTANT: &str = "const";
const COMPUTED: &str = "func";

impl Name {
    /// Of a value that is no column; `once`: it is the same for all rows.
    pub fn of_value(text: String, once: bool) -> Name {
        let reference = if once { CONSTANT } else { COMPUTED }.to_owned();
        Name { text, listed: String::new(), reference }
    }
}

/// What the places of a row, the values of a group and what is given are called.
#[derive(Clone, Copy)]
pub struct Names<'n> {
    pub columns: &'n [Name],
    pub given: &'n [Name],
    pub group: Option<&'n Group>,
}

const UNKNOWN: &str = "?";

impl Names<'_> {
    /// What an expression takes as it is.
    fn place(&self, e: &Expr) -> Option<&Name> {
        match e {
            Expr::Column(c) | Expr::Outer(c) | Expr::NewColumn(c) => self.columns.get(usize::from(c.slot)),
            Expr::Given(at, ..) => self.given.get(usize::from(*at)),
            _ => None,
        }
    }

    /// What the value of an expression is called where it is given.
    pub fn name(&self, e: &Expr) -> Name {
        self.place(e).cloned().unwrap_or_else(|| Name::of_value(self.text(e), false))
    }

    /// The columns that expressions name, each once, in order.
    pub fn columns_in<'e>(&self, expressions: impl IntoIterator<Item = &'e Expr>) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        expressions.into_iter().for_each(|e| self.add_columns(e, &mut found));
        found
    }

    fn add_columns(&self, e: &Expr, found: &mut BTreeSet<String>) {
        e.walk(&mut |part| match part {
            Expr::Aggregate(at, ..) => {
                self.in_group(*at).into_iter().for_each(|inner| self.add_columns(inner, found));
            }
            part => found.extend(self.place(part).map(|name| name.listed.clone()).filter(|name| !name.is_empty())),
        });
    }

    /// What a value of the group is made of.
    fn in_group(&self, at: usize) -> Option<&Expr> {
        let group = self.group?;
        match at.checked_sub(group.aggregates.len()) {
            None => group.aggregates[at].argument.as_ref(),
            Some(key) => group.keys.get(key).filter(|_| group.rollup).map(|key| &key.expr),
        }
    }

    pub fn text(&self, e: &Expr) -> String {
        let list = |list: &[Expr], between: &str| list.iter().map(|e| self.text(e)).collect::<Vec<_>>().join(between);
        let not = |negated: &bool| if *negated { "not " } else { "" };
        match e {
            Expr::Const(value) => constant(value),
            Expr::Param(at) | Expr::Variable(at, _) => format!("?{at}"),
            Expr::Column(_) | Expr::Outer(_) | Expr::NewColumn(_) | Expr::Given(..) => {
                self.place(e).map_or(UNKNOWN, |name| &name.text).to_owned()
            }
            Expr::Aggregate(at, ..) => self.of_group(*at),
            Expr::UserVariable(name, ..) => format!("(@{name})"),
            Expr::Stored(stored, arguments) => format!("{}({})", stored.routine.definition.name, list(arguments, ",")),
            Expr::SystemVariable { name, .. } => format!("@@{name}"),
            Expr::Negate(e) => format!("-({})", self.text(e)),
            Expr::Not(e) => format!("(not({}))", self.text(e)),
            Expr::BitNot(e) => format!("~({})", self.text(e)),
            Expr::Arith(op, a, b) => format!("({} {} {})", self.text(a), arithmetic(*op), self.text(b)),
            Expr::Compare(op, a, b, _) => format!("({} {} {})", self.text(a), comparison(*op), self.text(b)),
            Expr::NullSafeEq(a, b, _) => format!("({} <=> {})", self.text(a), self.text(b)),
            Expr::And(parts) | Expr::Or(parts) if parts.len() == 1 => self.text(&parts[0]),
            Expr::And(parts) => format!("({})", list(parts, " and ")),
            Expr::Or(parts) => format!("({})", list(parts, " or ")),
            Expr::Xor(a, b) => format!("({} xor {})", self.text(a), self.text(b)),
            Expr::IsNull { expr, negated } => format!("({} is {}null)", self.text(expr), not(negated)),
            Expr::IsTruth { expr, want, negated } => format!("({} is {}{want})", self.text(expr), not(negated)),
            Expr::In { expr, list: values, negated, .. } => {
                format!("({} {}in ({}))", self.text(expr), not(negated), list(values, ","))
            }
            Expr::Between { expr, low, high, negated, .. } => {
                format!("({} {}between {} and {})", self.text(expr), not(negated), self.text(low), self.text(high))
            }
            Expr::Like { expr, pattern, negated, .. } => {
                format!("({} {}like {})", self.text(expr), not(negated), self.text(pattern))
            }
            Expr::Case { operand, whens, otherwise, .. } => {
                let mut text = "(case".to_owned();
                operand.iter().for_each(|e| text += &format!(" {}", self.text(e)));
                whens
                    .iter()
                    .for_each(|(when, then)| text += &format!(" when {} then {}", self.text(when), self.text(then)));
                otherwise.iter().for_each(|e| text += &format!(" else {}", self.text(e)));
                text + " end)"
            }
            Expr::Cast(e, _) => self.text(e),
            Expr::Call(f, arguments, _) => format!("{}({})", snake(&format!("{f:?}")), list(arguments, ",")),
        }
    }

    fn of_group(&self, at: usize) -> String {
        let Some(group) = self.group else { return UNKNOWN.to_owned() };
        match (group.aggregates.get(at), at.checked_sub(group.aggregates.len())) {
            (Some(a), _) => {
                let argument = a.argument.as_ref().map_or_else(|| "0".to_owned(), |e| self.text(e));
                let distinct = if a.distinct { "distinct " } else { "" };
                format!("{}({distinct}{argument})", a.function.name())
            }
            (None, Some(key)) if group.rollup => group.keys.get(key).map_or(UNKNOWN.to_owned(), |k| self.text(&k.expr)),
            _ => "<window function>".to_owned(),
        }
    }

    pub fn keys(&self, keys: &[OrderKey]) -> Vec<String> {
        let one = |k: &OrderKey| format!("{}{}", self.text(&k.expr), if k.descending { " DESC" } else { "" });
        keys.iter().map(one).collect()
    }

    /// The values by which a path finds its rows; `None` where it reads everything.
    pub fn bounds(&self, table: &TableSchema, path: &Path) -> Option<String> {
        let name = |column: &u16| functional::shown(&table.columns[usize::from(*column)]);
        let equal = |columns: &[u16], values: &mut dyn Iterator<Item = &Expr>| {
            let pairs = columns.iter().zip(values).map(|(c, e)| format!("{} = {}", name(c), self.text(e)));
            pairs.collect::<Vec<_>>().join(", ")
        };
        match path {
            Path::Points { columns, values, rows: true, .. } => {
                let rows = values.iter().map(|row| format!("({})", equal(columns, &mut row.iter())));
                Some(rows.collect::<Vec<_>>().join(" OR "))
            }
            Path::Points { columns, values, .. } if values.iter().all(|list| list.len() == 1) => {
                Some(equal(columns, &mut values.iter().flatten()))
            }
            Path::Points { columns, values, .. } => {
                let one = |(c, list): (&u16, &Vec<Expr>)| {
                    let values = list.iter().map(|e| format!("({} = {})", name(c), self.text(e)));
                    let values = values.collect::<Vec<_>>().join(" OR ");
                    if list.len() > 1 && columns.len() > 1 { format!("({values})") } else { values }
                };
                Some(columns.iter().zip(values).map(one).collect::<Vec<_>>().join(" AND "))
            }
            Path::Range { columns, equal: values, low, high, .. } => {
                let mut parts = Vec::new();
                if !values.is_empty() {
                    parts.push(equal(columns, &mut values.iter()));
                }
                if low.is_some() || high.is_some() {
                    let column = columns.get(values.len()).map_or(UNKNOWN, name);
                    parts.push(self.interval(column, low.as_ref(), high.as_ref()));
                }
                (!parts.is_empty()).then(|| parts.join(" AND "))
            }
            Path::Union { columns, alternatives, .. } => {
                let column = columns.first().map_or(UNKNOWN, name);
                let one = |i: &Interval| format!("({})", self.interval(column, i.low.as_ref(), i.high.as_ref()));
                Some(alternatives.iter().map(one).collect::<Vec<_>>().join(" OR "))
            }
            Path::Listed(listed) => Some(self.listed(table, listed)),
        }
    }

    /// The values by which a multi-valued index is read.
    fn listed(&self, table: &TableSchema, listed: &Listed) -> String {
        let index = &table.indexes[listed.index];
        let shown = |at: usize| functional::shown(&table.columns[usize::from(index.columns[at])]);
        let at = listed.before.len();
        let pair = |(at, e): (usize, &Expr)| format!("{} = {}", shown(at), self.text(e));
        let before: Vec<String> = listed.before.iter().enumerate().map(pair).collect();
        let behind: Vec<String> = (at + 1..).zip(&listed.behind).map(pair).collect();
        let document = shown(at).strip_prefix("cast(").and_then(|text| text.rsplit_once(" as ")).map_or("", |(e, _)| e);
        let sought = match listed.sought.as_slice() {
            [Sought::Member(e)] => format!("{} = {}", shown(at), self.text(e)),
            sought => {
                let one = |sought: &Sought| format!("({} MEMBER OF ({document}))", self.text(sought.expr()));
                sought.iter().map(one).collect::<Vec<_>>().join(" OR ")
            }
        };
        let parts: Vec<String> = before.into_iter().chain([sought]).chain(behind).collect();
        parts.join(if listed.is_one() { ", " } else { " AND " })
    }

    /// The ranges that a path reads: [`bounds`](Names::bounds) with each alternative in parentheses.
    pub fn ranges(bounds: &str, path: &Path) -> String {
        match path {
            Path::Points { rows: true, .. } | Path::Union { .. } | Path::Listed(_) => bounds.to_owned(),
            Path::Points { columns, .. } if columns.len() == 1 => bounds.to_owned(),
            Path::Points { .. } | Path::Range { .. } => format!("({bounds})"),
        }
    }

    /// What holds of every row that a path finds, as [`Names::text`] writes such conditions.
    pub fn said(&self, table: &TableSchema, shown: &str, path: &Path) -> Vec<String> {
        let Some((columns, values)) = looked_up(path) else { return Vec::new() };
        let pair = |(column, value): (&u16, &Expr)| {
            let column = &table.columns[usize::from(*column)];
            let name = functional::expression(column).map_or_else(|| format!("{shown}.{}", column.name), str::to_owned);
            either_way(&name, &self.text(value))
        };
        columns.iter().zip(values).flat_map(pair).collect()
    }

    /// For each part of a key by what it is looked up.
    pub fn references(&self, path: &Path) -> Vec<String> {
        let one = |e: &Expr| match self.place(e) {
            Some(name) => name.reference.clone(),
            None if e.any(|part| self.place(part).is_some()) => COMPUTED.to_owned(),
            None => CONSTANT.to_owned(),
        };
        if let Path::Listed(listed) = path {
            return vec![CONSTANT.to_owned(); listed.parts()];
        }
        looked_up(path).into_iter().flat_map(|(_, values)| values).map(one).collect()
    }

    /// What data nodes ask of rows; `columns`: what those of the table are called.
    pub fn pushed(&self, columns: &[Name], pushed: &Pushed) -> String {
        let name = |column: &u16| columns.get(usize::from(*column)).map_or(UNKNOWN, |name| name.text.as_str());
        let one = |test: &Test| match test {
            Test::Ranges { column, beginning, alternatives, negated } => {
                let column = match beginning {
                    Some(beginning) => format!("left({},{})", name(column), self.text(&beginning.length)),
                    None => name(column).to_owned(),
                };
                let one = |i: &Interval| self.interval(&column, i.low.as_ref(), i.high.as_ref());
                let said = alternatives.iter().map(one).collect::<Vec<_>>().join(" or ");
                if *negated { format!("(not({said}))") } else { format!("({said})") }
            }
            Test::IsNull { column, negated } => {
                format!("({} is {}null)", name(column), if *negated { "not " } else { "" })
            }
            Test::Columns { left, op, right } => format!("({} {} {})", name(left), comparison(*op), name(right)),
            Test::Like { column, pattern, negated, .. } => {
                format!("({} {}like {})", name(column), if *negated { "not " } else { "" }, self.text(pattern))
            }
            // Made while a join runs.
            Test::Set { column, .. } => format!("({} in (<join>))", name(column)),
        };
        let tests: Vec<String> = pushed.tests().iter().map(one).collect();
        if let [one] = tests.as_slice() { one.clone() } else { format!("({})", tests.join(" and ")) }
    }

    fn interval(&self, column: &str, low: Option<&(Expr, bool)>, high: Option<&(Expr, bool)>) -> String {
        if let (Some((a, true)), Some((b, true))) = (low, high)
            && a == b
        {
            return format!("{column} = {}", self.text(a));
        }
        let sign = |included: &bool| if *included { "<=" } else { "<" };
        let low = low.map_or_else(String::new, |(e, included)| format!("{} {} ", self.text(e), sign(included)));
        let high = high.map_or_else(String::new, |(e, included)| format!(" {} {}", sign(included), self.text(e)));
        format!("{low}{column}{high}")
    }
}

/// The one value of each column by which a path finds its rows, if that is all it goes by.
fn looked_up(path: &Path) -> Option<(&[u16], Vec<&Expr>)> {
    match path {
        Path::Points { columns, values, rows: false, .. } if values.iter().all(|list| list.len() == 1) => {
            Some((columns, values.iter().flatten().collect()))
        }
        Path::Range { columns, equal, .. } => Some((columns, equal.iter().collect())),
        _ => None,
    }
}

/// That two values are equal, whichever stands first.
pub fn either_way(a: &str, b: &str) -> [String; 2] {
    [format!("({a} = {b})"), format!("({b} = {a})")]
}

fn constant(value: &Datum<'_>) -> String {
    match value {
        Datum::Null => "NULL".to_owned(),
        Datum::Int(_) | Datum::UInt(_) | Datum::Decimal { .. } | Datum::Fine { .. } | Datum::Double(_) => {
            value.as_string()
        }
        Datum::Bit(n, _) => bits::literal(*n),
        Datum::Date(_) => format!("DATE'{}'", value.as_string()),
        Datum::DateTime(..) => format!("TIMESTAMP'{}'", value.as_string()),
        Datum::Time(..) => format!("TIME'{}'", value.as_string()),
        Datum::Text(_) | Datum::Bytes(_) | Datum::Label(..) | Datum::Json(_) => {
            format!("'{}'", value.as_string().replace('\'', "''"))
        }
    }
}

fn arithmetic(op: ArithOp) -> &'static str {
    match op {
        ArithOp::Add => "+",
        ArithOp::Sub | ArithOp::SignedSub => "-",
        ArithOp::Mul => "*",
        ArithOp::Div => "/",
        ArithOp::IntDiv => "DIV",
        ArithOp::Mod => "%",
        ArithOp::BitAnd => "&",
        ArithOp::BitOr => "|",
        ArithOp::BitXor => "^",
        ArithOp::ShiftLeft => "<<",
        ArithOp::ShiftRight => ">>",
    }
}

fn comparison(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "=",
        CompareOp::NotEq => "<>",
        CompareOp::Lt => "<",
        CompareOp::LtEq => "<=",
        CompareOp::Gt => ">",
        CompareOp::GtEq => ">=",
    }
}

/// `CharLength` is `char_length`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() && i > 0 {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
