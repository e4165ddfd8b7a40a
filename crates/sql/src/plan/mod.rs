//! Plans: what a statement does, compiled from its syntax tree against one version of the dictionary.

pub mod access;
mod behind_groups;
pub mod bind;
mod block;
pub mod cache;
pub mod change;
pub(crate) mod column_name;
pub mod cost;
pub mod derived;
pub mod derived_condition_pushdown;
mod disjunction;
pub mod dml;
mod from;
mod grouping;
pub(crate) mod hint;
mod inner_lock;
pub mod into;
mod join;
mod join_cost;
mod join_order;
pub mod json_table;
mod merge;
pub(crate) mod needs;
pub mod outputs;
pub mod pushed_condition;
pub mod pushed_group;
pub mod query;
pub mod rollup;
pub(crate) mod rules;
pub mod scope;
pub mod select;
mod semi_join;
pub mod shape;
pub mod syntax;
pub(crate) mod text;
pub mod traits;
mod union_type;
pub mod updatable_view;
pub mod view;
pub mod window;

use self::{
    hint::{Hints, Uses},
    needs::{Names, Needs, Noted},
    rules::functional,
};
use crate::{
    catalog::{Catalog, Table, performance_schema, statistics::Statistics, temporary},
    errors::{self, Result},
    expr::{Expr, Kind, coercion, env::Env},
    monitor::status::Counter,
    program::function::Stored,
    session::authorize,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use sqlparser::ast::{self, Statement};

pub use dml::{Delete, Update, insert::Insert};
pub use select::Select;

#[derive(Debug)]
pub enum Plan {
    Select(Box<Select>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    /// SELECT ... INTO @name, ...
    Into(Box<into::Into>),
    /// UPDATE or DELETE of several tables, or with subqueries.
    Change(Box<change::Locked>),
}

impl Plan {
    /// What SHOW STATUS counts it as.
    pub fn counter(&self) -> Counter {
        match self {
            Plan::Select(_) | Plan::Into(_) => Counter::Select,
            Plan::Insert(p) if matches!(p.on_duplicate, dml::insert::OnDuplicate::Replace) => Counter::Replace,
            Plan::Insert(_) => Counter::Insert,
            Plan::Change(p) if p.is_update => Counter::Update,
            Plan::Update(_) => Counter::Update,
            Plan::Delete(_) | Plan::Change(_) => Counter::Delete,
        }
    }
    /// The tables it was made for.
    pub fn tables(&self) -> impl Iterator<Item = &Rc<Table>> {
        let (written, read): (_, &[Rc<Table>]) = match self {
            Plan::Select(select) => (None, &select.reads),
            Plan::Into(into) => (None, &into.query.reads),
            Plan::Insert(insert) => {
                let read = match &insert.source {
                    dml::insert::Source::Select(select) => select.reads.as_slice(),
                    dml::insert::Source::Values(_) => &[],
                };
                (Some(&insert.table), read)
            }
            Plan::Update(update) => (Some(&update.table), &[]),
            Plan::Delete(delete) => (Some(&delete.table), &[]),
            Plan::Change(change) => (None, &change.query.reads),
        };
        written.into_iter().chain(read)
    }
}

impl Plan {
    /// Whether what says which rows are changed calls a function that does more than read.
    pub fn finds_in_turn(&self) -> bool {
        let is_in_turn = |stored: &Stored| !stored.is_reading;
        let is = |e: &Expr| matches!(e, Expr::Stored(stored, _) if is_in_turn(stored));
        match self {
            Plan::Update(update) => update.access.has(is) || update.order.iter().any(|key| key.expr.any(is)),
            Plan::Delete(delete) => delete.access.has(is) || delete.order.iter().any(|key| key.expr.any(is)),
            // All that it computes is part of the query.
            Plan::Change(change) => change.query.names.functions.iter().any(is_in_turn),
            Plan::Select(_) | Plan::Into(_) | Plan::Insert(_) => false,
        }
    }
    /// The tables that it changes.
    pub fn written(&self) -> impl Iterator<Item = &Rc<Table>> {
        let (alone, targets): (_, &[change::Target]) = match self {
            Plan::Select(_) | Plan::Into(_) => (None, &[]),
            Plan::Insert(insert) => (Some(&insert.table), &[]),
            Plan::Update(update) => (Some(&update.table), &[]),
            Plan::Delete(delete) => (Some(&delete.table), &[]),
            Plan::Change(change) => (None, &change.targets),
        };
        let is_changed = |target: &&change::Target| !matches!(target.fate, change::Fate::Stays);
        alone.into_iter().chain(targets.iter().filter(is_changed).map(|target| &target.table))
    }

    /// The views that it was made for, and the privileges that it needs.
    pub fn names(&self) -> &Names {
        match self {
            Plan::Select(select) => &select.names,
            Plan::Into(into) => &into.query.names,
            Plan::Insert(insert) => &insert.names,
            Plan::Update(update) => &update.names,
            Plan::Delete(delete) => &delete.names,
            Plan::Change(change) => &change.query.names,
        }
    }
    pub(crate) fn names_mut(&mut self) -> &mut Names {
        match self {
            Plan::Select(select) => &mut select.names,
            Plan::Into(into) => &mut into.query.names,
            Plan::Insert(insert) => &mut insert.names,
            Plan::Update(update) => &mut update.names,
            Plan::Delete(delete) => &mut delete.names,
            Plan::Change(change) => &mut change.query.names,
        }
    }
    /// It locks what it reads to change it.
    fn locks(&self) -> bool {
        let Plan::Select(select) = self else { return false };
        let joined = select.locked.as_ref().is_some_and(|locked| locked.targets.iter().any(|t| t.exclusive));
        joined || select.lock.is_some_and(|lock| lock.exclusive)
    }
    /// What it was made for is what it was.
    pub fn is_of(&self, catalog: &Catalog) -> bool {
        let names = self.names();
        self.tables().all(|t| catalog.has(t))
            && names.views.iter().all(|v| catalog.has_view(v))
            && names.functions.iter().all(|stored| catalog.has_routine(&stored.routine))
    }
}

impl Plan {
    /// The block that finds its rows, where it has one.
    pub fn reading(&self) -> Option<&Select> {
        match self {
            Plan::Select(select) => Some(select),
            Plan::Into(into) => Some(&into.query),
            Plan::Change(change) => Some(&change.query),
            Plan::Insert(insert) => match &insert.source {
                dml::insert::Source::Select(select) => Some(select),
                dml::insert::Source::Values(_) => None,
            },
            Plan::Update(_) | Plan::Delete(_) => None,
        }
    }

    /// It reads several tables: in which order is for their sizes to say.
    pub fn is_weighed(&self) -> bool {
        self.reading().is_some_and(|select| select.reads.len() > 1)
    }

    /// It joins tables as a whole, and one of them is so large that planning it each time for its own values costs little beside running it.
    pub fn is_large(&self, statistics: &Statistics) -> bool {
        const ROWS_MIN: f64 = 20_000.0;
        let is_large = |table: &Rc<Table>| statistics.of(table).is_some_and(|known| known.rows >= ROWS_MIN);
        self.is_weighed() && !self.is_by_key() && self.tables().any(is_large)
    }

    /// It is more than a read.
    pub fn changes_or_locks(&self) -> bool {
        match self {
            Plan::Select(select) => select.lock.is_some() || select.locked.is_some(),
            Plan::Into(into) => into.query.lock.is_some() || into.query.locked.is_some(),
            _ => true,
        }
    }

    /// It stays as good as it is however large its tables grow: all is reached by keys.
    pub fn is_by_key(&self) -> bool {
        matches!(self, Plan::Select(select) if select.join.as_ref().is_some_and(|join| join.is_by_key))
    }
}

/// What planning needs to know.
pub struct Planner<'a> {
    pub catalog: &'a Catalog,
    pub env: &'a Env,
    /// The statement, for the names of columns without an alias.
    pub text: &'a str,
    pub param_kinds: Vec<Kind>,
    /// Placeholders stand for literals of the text; where one decides the shape of the plan it cannot be cached.
    pub from_digest: bool,
    /// The query blocks under construction.
    pub frames: scope::frames::Frames,
    /// Common table expressions in view.
    pub common: RefCell<Vec<derived::common_tables::Common>>,
    /// Of the next block only whether it has rows is asked.
    pub shapeless: Cell<bool>,
    /// Parameters or variables decide the types of a block's columns, or what can be looked up by keys.
    pub typed: Cell<bool>,
    /// Literals decide whether an index can be used.
    pub waits_for_literals: Cell<bool>,
    pub views: view::Views,
    /// Privileges that what was planned so far needs.
    pub needs: RefCell<needs::Noted>,
    /// Stored functions that are called.
    pub functions: RefCell<Vec<Stored>>,
    pub inner_locks: inner_lock::InnerLocks,
    pub(crate) merges: merge::Merges,
    pub(crate) inward: derived_condition_pushdown::Inward,
    pub hints: Option<Hints>,
}

/// Why a digest cannot be planned: the statement's own text must be.
#[derive(Debug)]
pub enum Unplanned {
    Structural,
    Error(crate::wire::SqlError),
}

impl From<crate::wire::SqlError> for Unplanned {
    fn from(e: crate::wire::SqlError) -> Unplanned {
        Unplanned::Error(e)
    }
}

impl<'a> Planner<'a> {
    pub fn new(catalog: &'a Catalog, env: &'a Env, text: &'a str, param_kinds: Vec<Kind>) -> Planner<'a> {
        coercion::connect(&env.variables);
        let (frames, common, shapeless, typed, views) = Default::default();
        let (from_digest, waits_for_literals, needs, functions, inner_locks, merges, inward, hints) =
            Default::default();
        Planner {
            catalog,
            env,
            text,
            param_kinds,
            from_digest,
            frames,
            common,
            shapeless,
            typed,
            waits_for_literals,
            views,
            needs,
            functions,
            inner_locks,
            merges,
            inward,
            hints,
        }
    }
    /// The path to rows of a table; see [`access::choice::choose`].
    fn choose(&self, table: &Table, condition: Option<Expr>, order: &[u16], uses: Option<&Uses>) -> access::Access {
        let mut access = access::choice::choose(table, condition, order, &self.param_kinds, uses);
        let known = self.catalog.statistics.of(table);
        access.part = known.map(|known| access.rest.as_ref().map_or(1.0, |e| cost::part(e, &known, None)));
        self.wait_for_literals(access.waits_for_literals);
        self.wait_for_kinds(access.waits_for_kinds);
        access
    }
    /// A plan is good for parameters of some kinds only.
    fn wait_for_kinds(&self, waits: bool) {
        self.wait_for_literals(waits);
        self.typed.set(self.typed.get() || waits);
    }
    fn wait_for_literals(&self, waits: bool) {
        self.waits_for_literals.set(self.waits_for_literals.get() || waits);
    }
    /// The columns that rows are ordered by, where all are, and in one direction; an expression may be kept in a column.
    fn ordering(&self, table: &Table, order: &[select::OrderKey]) -> Option<Vec<u16>> {
        let one = |key: &select::OrderKey| {
            let (column, waits) = functional::column(table, &key.expr);
            self.wait_for_literals(waits);
            column.filter(|_| key.descending == order[0].descending).map(|c| c.slot)
        };
        order.iter().map(one).collect()
    }
    /// The statement assigns variables in expressions.
    fn assigns(&self) -> bool {
        self.text.contains(":=")
    }
    fn is_outermost(&self) -> bool {
        self.frames.depth() == 1
    }
}

impl Planner<'_> {
    pub fn plan(&self, statement: &Statement) -> std::result::Result<Plan, Unplanned> {
        let planned = self.plan_of(statement);
        self.check_own_tables()?;
        let mut plan = planned.map_err(|e| match e {
            Unplanned::Error(e) => {
                Unplanned::Error(authorize::denied_before(self.env, &self.needs.take().list).unwrap_or(e))
            }
            structural => structural,
        })?;
        if self.from_digest && self.waits_for_literals.get() {
            return Err(Unplanned::Structural);
        }
        self.refuse_inner_locks()?;
        let views = self.views.used.take().iter().map(|view| view.table.clone()).collect();
        let Noted { list, references, .. } = self.needs.take();
        let needs = Needs::new(list, plan.locks());
        let (functions, outside) = (self.functions.take(), self.frames.take_outside());
        let hints = self.hints.as_ref().map(|hints| Box::new(hints.told()));
        let reads_status = plan.tables().any(|table| {
            let schema = &table.schema;
            schema.database == performance_schema::DATABASE && schema.name == performance_schema::SESSION_STATUS
        });
        *plan.names_mut() = Names {
            views,
            functions,
            needs,
            references,
            reads_status,
            outside,
            is_typed: self.typed.get(),
            hints,
            traits: 0,
        };
        plan.names_mut().traits = traits::of(&plan);
        Ok(plan)
    }

    fn plan_of(&self, statement: &Statement) -> std::result::Result<Plan, Unplanned> {
        match statement {
            Statement::Query(query) => Ok(Plan::Select(Box::new(self.merging(query)?))),
            Statement::Insert(insert) => Ok(Plan::Insert(Box::new(self.insert(insert)?))),
            Statement::Update(update) => self.update_or_change(update),
            Statement::Delete(delete) => self.delete_or_change(delete),
            other => Err(errors::not_supported(&other.to_string().chars().take(40).collect::<String>()).into()),
        }
    }

    fn update_or_change(&self, update: &ast::Update) -> std::result::Result<Plan, Unplanned> {
        let from = std::slice::from_ref(&update.table);
        let is_joined = change::is_joined(from, self.text);
        let through = if is_joined { None } else { self.through(from)? };
        if is_joined || through.is_none() && self.names_view(from)? {
            return Ok(Plan::Change(Box::new(self.joined_update(update)?)));
        }
        Ok(Plan::Update(Box::new(self.update(update, through)?)))
    }

    fn delete_or_change(&self, delete: &ast::Delete) -> std::result::Result<Plan, Unplanned> {
        let from = from_of(delete);
        let is_joined = !delete.tables.is_empty() || delete.using.is_some() || change::is_joined(from, self.text);
        let through = if is_joined { None } else { self.through(from)? };
        if is_joined || through.is_none() && self.names_view(from)? {
            return Ok(Plan::Change(Box::new(self.joined_delete(delete)?)));
        }
        Ok(Plan::Delete(Box::new(self.delete(delete, through)?)))
    }

    /// Database and table of a name.
    pub fn resolve(&self, name: &ast::ObjectName) -> Result<Rc<Table>> {
        let (database, table) = self.split_name(name)?;
        let found = match database == temporary::DATABASE {
            true => Err(errors::unknown_database(&database)),
            false => self.seen().table(&database, &table),
        };
        found.map_err(|e| match self.views.definer() {
            None => authorize::unseen(self.env, &database, &table, self.text).unwrap_or(e),
            Some(_) => e,
        })
    }

    /// What names mean here: the text of a view knows no temporary tables.
    pub(crate) fn seen(&self) -> &Catalog {
        if self.views.is_outermost() { self.catalog } else { self.catalog.permanent() }
    }

    pub fn split_name(&self, name: &ast::ObjectName) -> Result<(String, String)> {
        let parts: Vec<&str> = name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.as_str()).collect();
        match parts.as_slice() {
            [table] => {
                let database = self.views.database().or_else(|| self.env.database.clone());
                Ok((database.ok_or_else(errors::no_database)?, (*table).to_owned()))
            }
            [database, table] => Ok(((*database).to_owned(), (*table).to_owned())),
            _ => Err(errors::syntax(&name.to_string())),
        }
    }

    /// The one table of a FROM clause and its name in the statement.
    pub fn single_table(&self, from: &[ast::TableWithJoins]) -> Result<(Rc<Table>, String)> {
        let [one] = from else { return Err(errors::not_supported("joins")) };
        if !one.joins.is_empty() {
            return Err(errors::not_supported("joins"));
        }
        match &one.relation {
            ast::TableFactor::Table { name, alias, args: None, partitions, sample: None, .. }
                if partitions.is_empty() =>
            {
                let table = self.resolve(name)?;
                let shown = alias.as_ref().map_or_else(|| table.schema.name.clone(), |a| a.name.value.clone());
                Ok((table, shown))
            }
            ast::TableFactor::Derived { .. } => Err(errors::not_supported("derived tables")),
            _ => Err(errors::not_supported("this form of FROM")),
        }
    }
}

fn from_of(delete: &ast::Delete) -> &[ast::TableWithJoins] {
    let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) = &delete.from;
    from
}
