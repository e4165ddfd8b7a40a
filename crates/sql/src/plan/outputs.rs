//! The select list: its columns, their names and what a client is told of them.

use std::rc::Rc;

use apus_types::schema::ColumnType;
use sqlparser::{
    ast::{self, SelectItem},
    tokenizer::Location,
};

use super::{
    Planner, Unplanned,
    bind::{Aggregate, AggregateKind, Builder},
    column_name,
    scope::{Scope, Starred},
    select::Output,
    shape::{Shape, Shapes},
    window::Call,
};
use crate::{
    errors,
    expr::{
        CastType, Expr, Func, Kind,
        coercion::{self, collation_of},
        result_cells,
    },
    parse::view_text::display_name,
    value::{datum::Datum, number_format::Face},
    wire::{SqlError, column_flag},
};

pub struct Columns<'c, 'a> {
    pub planner: &'c Planner<'a>,
    pub scope: &'c Rc<Scope>,
    /// The statement, for the names of columns without an alias; empty: they are spelled from the syntax tree.
    pub text: &'c str,
    /// Nobody sees the values.
    pub is_shapeless: bool,
}

impl Columns<'_, '_> {
    pub fn outputs(&self, builder: &mut Builder<'_>, select: &ast::Select) -> Result<Vec<Output>, Unplanned> {
        let mut outputs = Vec::new();
        // Where the texts do not fit the list, names are spelled from the syntax tree.
        let texts = column_name::select_items(self.text);
        let texts = if texts.len() == select.projection.len() { texts } else { Vec::new() };
        for (i, item) in select.projection.iter().enumerate() {
            self.planner.begin_column();
            match item {
                SelectItem::Wildcard(options) => self.wildcard(place(options), self.scope.star(), &mut outputs)?,
                SelectItem::QualifiedWildcard(kind, options) => {
                    self.wildcard(place(options), self.columns_of(kind)?, &mut outputs)?;
                }
                SelectItem::UnnamedExpr(e) => {
                    let expr = builder.build(e)?;
                    // The heading shows the literals, also those inside of an aggregate.
                    if self.planner.from_digest
                        && !self.is_shapeless
                        && (expr.has_param() || display_name(e).contains('?'))
                    {
                        return Err(Unplanned::Structural);
                    }
                    let of_view = self.name_in_view(e);
                    let name = match (&expr, e, texts.get(i)) {
                        _ if of_view.is_some() => of_view.unwrap_or_default(),
                        (Expr::Column(_), ast::Expr::Identifier(i), _) => i.value.clone(),
                        (Expr::Column(_) | Expr::Given(..), ast::Expr::CompoundIdentifier(parts), _) => {
                            parts.last().map(|i| i.value.clone()).unwrap_or_default()
                        }
                        (_, e, _) if is_text_literal(e) => display_name(e),
                        (_, _, None) => display_name(e),
                        (_, _, Some(text)) => {
                            let text =
                                if expr.has_param() { column_name::without_numbers(text) } else { (*text).to_owned() };
                            column_name::as_written(text, self.planner.env.variables.syntax)
                        }
                    };
                    let known = (builder.aggregates.as_slice(), builder.windows.calls.as_slice());
                    outputs.push(self.computed(expr, column_name::shortened(name), known));
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let expr = builder.build(expr)?;
                    let known = (builder.aggregates.as_slice(), builder.windows.calls.as_slice());
                    outputs.push(self.computed(expr, alias.value.clone(), known));
                }
                other => return Err(errors::syntax(&other.to_string()).into()),
            }
        }
        Ok(outputs)
    }

    /// A column of a view that was merged, or of INFORMATION_SCHEMA, is called as that one calls it, however it is written.
    fn name_in_view(&self, e: &ast::Expr) -> Option<String> {
        let (table, name) = match e {
            ast::Expr::Identifier(name) => (None, name),
            ast::Expr::CompoundIdentifier(parts) => {
                let [.., table, name] = parts.as_slice() else { return None };
                (Some(table), name)
            }
            _ => return None,
        };
        let is_meant = |shown: &str| table.is_none_or(|table| table.value.eq_ignore_ascii_case(shown));
        let of_view = self.scope.views.iter().filter(|view| is_meant(&view.shown));
        let mut of_view = of_view.flat_map(|view| view.columns.iter().map(|(name, _)| name));
        let tables =
            self.scope.tables.iter().filter(|t| {
                t.table.schema.database == crate::catalog::information_schema::DATABASE && is_meant(&t.shown)
            });
        let mut of_table = tables.flat_map(|table| table.table.schema.columns.iter().map(|column| &column.name));
        let is_it = |column: &&String| column.eq_ignore_ascii_case(&name.value);
        of_view.find(is_it).or_else(|| of_table.find(is_it)).cloned()
    }

    fn wildcard(&self, at: Location, columns: Vec<Starred>, outputs: &mut Vec<Output>) -> Result<(), Unplanned> {
        if self.scope.tables.is_empty() {
            return Err(SqlError::new(1096, b"HY000", "No tables used").into());
        }
        self.planner.note_star(at, self.scope, &columns);
        for column in columns {
            if let Some(source) = self.scope.source_of_starred(&column) {
                self.planner.read(source, &column.name, true);
            }
            outputs.push(self.computed(column.expr, column.name, (&[], &[])));
        }
        Ok(())
    }

    fn columns_of(&self, kind: &ast::SelectItemQualifiedWildcardKind) -> Result<Vec<Starred>, Unplanned> {
        let ast::SelectItemQualifiedWildcardKind::ObjectName(name) = kind else {
            return Err(errors::syntax(&kind.to_string()).into());
        };
        let parts: Vec<&str> = name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.as_str()).collect();
        let found = match parts.as_slice() {
            [table] => self.scope.star_of(None, table),
            [database, table] => self.scope.star_of(Some(database), table),
            _ => None,
        };
        Ok(found.ok_or_else(|| errors::drop_unknown_table(&name.to_string()))?)
    }

    /// An output of an expression, of the type that all its values are stored with where they are.
    pub(super) fn computed(&self, expr: Expr, name: String, (aggregates, calls): (&[Aggregate], &[Call])) -> Output {
        let ty = match &expr {
            Expr::Column(_) => None,
            Expr::UserVariable(_, kind, _) => type_of_variable(*kind),
            expr => declared(expr, aggregates),
        };
        let shapes = Shapes { scope: self.scope, aggregates, calls, params: &self.planner.param_kinds };
        let mut shape = shapes.of(&expr);
        if let Expr::Given(at, _, true) = &expr {
            shape.face = self.planner.frames.face_of_given(*at);
        }
        let mut output = Output { shape, ..self.output(expr, name) };
        // What may be longer than a VARCHAR is a TEXT.
        output.def.decimals = shown_decimals(&output.expr, &self.planner.param_kinds).unwrap_or(output.def.decimals);
        let is_long = output.kind == Kind::Text && matches!(shape.ty, ColumnType::Text { .. });
        let ty = ty.or(is_long.then_some(shape.ty));
        if let Some(ty) = ty {
            output.def = result_cells::like_column(std::mem::take(&mut output.def.name), output.kind, ty);
            if let Some(face) = shape.face.and_then(|face| face.without_zeros(ty)) {
                result_cells::look(&mut output.def, ty, face);
            }
        }
        output
    }

    /// An output; of a column with what is known of it.
    pub fn output(&self, expr: Expr, name: String) -> Output {
        if let Expr::Column(c) = &expr
            && let Some(table) = self.scope.of_slot(c.slot)
        {
            let mut def = result_cells::column_def(&table.table.schema, c.slot - table.first);
            def.table = table.shown.clone();
            if let Some(merged) = &table.beneath {
                def.table = merged.shown.clone();
            }
            if table.table.schema.database.is_empty() {
                def.org_table.clear();
                def.flags &= !(column_flag::PRI_KEY | column_flag::MULTIPLE_KEY | column_flag::UNIQUE_KEY);
            }
            def.name = name;
            if table.is_nullable {
                def.flags &= !column_flag::NOT_NULL;
            }
            let shape = match table.table.shapes.get(usize::from(c.slot - table.first)) {
                Some(&shape) => Shape { nullable: shape.nullable || table.is_nullable, ..shape },
                None => Shape {
                    ty: c.ty,
                    nullable: def.flags & column_flag::NOT_NULL == 0,
                    face: Face::of(table.column(c.slot)),
                },
            };
            return Output { kind: Kind::of(c.ty), expr, def, shape };
        }
        let kind = expr.kind(&self.planner.param_kinds);
        let ty = coercion::type_of(kind, collation_of(&expr, &self.planner.param_kinds));
        let shape = Shape { ty, nullable: true, face: None };
        let def = match &expr {
            Expr::Variable(place, ty) => {
                let known = self.planner.env.names.as_ref().and_then(|names| names.at(*place));
                result_cells::variable_def(name, *ty, known.and_then(|known| known.face))
            }
            Expr::Stored(stored, _) => result_cells::variable_def(name, stored.ty, None),
            _ => result_cells::expression_def(name, kind),
        };
        Output { def, kind, expr, shape }
    }
}

/// Where a `*` stands in the text.
fn place(options: &ast::WildcardAdditionalOptions) -> Location {
    options.wildcard_token.0.span.start
}

/// What a client is told of a variable, whatever is in it.
fn type_of_variable(kind: Kind) -> Option<ColumnType> {
    match kind {
        Kind::Text => Some(ColumnType::Text { length: u32::MAX, collation: Default::default() }),
        Kind::Decimal(_) => Some(ColumnType::Decimal { precision: 65, scale: 30, unsigned: false }),
        _ => None,
    }
}

/// The type of the column, or of a cast, that all values of an expression come from.
fn declared(e: &Expr, aggregates: &[Aggregate]) -> Option<ColumnType> {
    match e {
        Expr::Column(c) => Some(c.ty),
        Expr::Cast(_, CastType::Float) => Some(ColumnType::Float),
        Expr::Call(Func::JsonValue, args, _) => args.get(2).and_then(|to| declared(to, aggregates)),
        Expr::Call(Func::Year, ..) | Expr::Cast(_, CastType::AsYear) => Some(ColumnType::Year),
        Expr::Call(Func::LoadFile, ..) => Some(ColumnType::Blob { length: u32::MAX }),
        Expr::Call(Func::RegexpReplace, ..) => Some(ColumnType::Text { length: 65_535, collation: Default::default() }),
        Expr::Call(Func::DateAdd | Func::DateSub, args, _) if args.first()?.kind(&[]) == Kind::Text => {
            Some(ColumnType::Char { length: 29, collation: Default::default() })
        }
        Expr::Aggregate(i, ..) => match aggregates.get(*i)? {
            a if matches!(a.function, AggregateKind::Min | AggregateKind::Max) => {
                declared(a.argument.as_ref()?, aggregates)
            }
            a if a.function == AggregateKind::GroupConcat && a.kind == Kind::Bytes => {
                Some(ColumnType::Blob { length: 65_535 })
            }
            a if a.function == AggregateKind::GroupConcat => {
                Some(ColumnType::Text { length: 65_535, collation: a.collation })
            }
            _ => None,
        },
        e if is_text_of_json(e) => {
            Some(ColumnType::Text { length: u32::MAX, collation: apus_types::collate::Collation::Utf8mb4Bin })
        }
        Expr::Call(Func::If, list, _) => same_type(list.iter().skip(1), aggregates),
        Expr::Call(Func::IfNull | Func::Coalesce, list, _) => same_type(list.iter(), aggregates),
        Expr::Case { whens, otherwise, .. } => {
            same_type(whens.iter().map(|(_, then)| then).chain(otherwise.as_deref()), aggregates)
        }
        _ => None,
    }
}

/// Whether this is a text as long as the document that it is made of.
pub fn is_text_of_json(e: &Expr) -> bool {
    let is_made_of_it = match e {
        Expr::Call(..) | Expr::Case { .. } => e.kind(&[]) == Kind::Text,
        Expr::Cast(_, CastType::Text(None)) => true,
        _ => false,
    };
    is_made_of_it
        && !matches!(e, Expr::Call(Func::JsonType | Func::JsonValue, ..))
        && e.children().into_iter().any(|part| part.kind(&[]) == Kind::Json || is_text_of_json(part))
}

/// The type that all but NULL have.
fn same_type<'e>(list: impl Iterator<Item = &'e Expr>, aggregates: &[Aggregate]) -> Option<ColumnType> {
    let mut types = list.filter(|e| !matches!(e, Expr::Const(Datum::Null))).map(|e| declared(e, aggregates));
    let first = types.next()??;
    let is_label = matches!(first, ColumnType::Label { .. });
    (!is_label && types.all(|ty| ty == Some(first))).then_some(first)
}

/// Digits behind the point of a double that a moment was made to.
fn shown_decimals(e: &Expr, params: &[Kind]) -> Option<u8> {
    let of = match e {
        Expr::Negate(e) => &**e,
        Expr::Call(Func::Abs, list, _) => list.first()?,
        _ => return None,
    };
    match of.kind(params) {
        Kind::DateTime(n) | Kind::Time(n) if n > 0 => Some(n),
        _ => None,
    }
}

fn is_text_literal(e: &ast::Expr) -> bool {
    use ast::Value as V;
    matches!(e, ast::Expr::Value(v) if matches!(v.value, V::SingleQuotedString(_) | V::DoubleQuotedString(_)))
}
