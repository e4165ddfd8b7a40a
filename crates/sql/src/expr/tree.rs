//! What stands within an expression: its children, its columns, what its value depends on.

use super::{Expr, Kind};

impl Expr {
    /// Direct parts.
    pub fn children(&self) -> Vec<&Expr> {
        match self {
            Expr::Const(_)
            | Expr::Param(_)
            | Expr::Variable(..)
            | Expr::Column(_)
            | Expr::Outer(_)
            | Expr::Given(..)
            | Expr::NewColumn(_)
            | Expr::Aggregate(..)
            | Expr::UserVariable(..)
            | Expr::SystemVariable { .. } => Vec::new(),
            Expr::Negate(e) | Expr::Not(e) | Expr::BitNot(e) | Expr::Cast(e, _) => vec![e],
            Expr::IsNull { expr, .. } | Expr::IsTruth { expr, .. } => vec![expr],
            Expr::Arith(_, a, b) | Expr::Compare(_, a, b, _) | Expr::NullSafeEq(a, b, _) | Expr::Xor(a, b) => {
                vec![a, b]
            }
            Expr::And(list) | Expr::Or(list) | Expr::Call(_, list, _) | Expr::Stored(_, list) => list.iter().collect(),
            Expr::In { expr, list, .. } => std::iter::once(&**expr).chain(list).collect(),
            Expr::Between { expr, low, high, .. } => vec![expr, low, high],
            Expr::Like { expr, pattern, .. } => vec![expr, pattern],
            Expr::Case { operand, whens, otherwise, .. } => operand
                .iter()
                .map(|e| &**e)
                .chain(whens.iter().flat_map(|(w, t)| [w, t]))
                .chain(otherwise.iter().map(|e| &**e))
                .collect(),
        }
    }

    /// Calls `visit` on this and all parts.
    pub fn walk(&self, visit: &mut impl FnMut(&Expr)) {
        visit(self);
        for child in self.children() {
            child.walk(visit);
        }
    }

    pub fn walk_mut(&mut self, visit: &mut impl FnMut(&mut Expr)) {
        visit(self);
        match self {
            Expr::Const(_)
            | Expr::Param(_)
            | Expr::Variable(..)
            | Expr::Column(_)
            | Expr::Outer(_)
            | Expr::Given(..)
            | Expr::NewColumn(_)
            | Expr::Aggregate(..)
            | Expr::UserVariable(..)
            | Expr::SystemVariable { .. } => {}
            Expr::Negate(e) | Expr::Not(e) | Expr::BitNot(e) | Expr::Cast(e, _) => e.walk_mut(visit),
            Expr::IsNull { expr, .. } | Expr::IsTruth { expr, .. } => expr.walk_mut(visit),
            Expr::Arith(_, a, b) | Expr::Compare(_, a, b, _) | Expr::NullSafeEq(a, b, _) | Expr::Xor(a, b) => {
                a.walk_mut(visit);
                b.walk_mut(visit);
            }
            Expr::And(list) | Expr::Or(list) | Expr::Call(_, list, _) | Expr::Stored(_, list) => {
                list.iter_mut().for_each(|e| e.walk_mut(visit))
            }
            Expr::In { expr, list, .. } => {
                expr.walk_mut(visit);
                list.iter_mut().for_each(|e| e.walk_mut(visit));
            }
            Expr::Between { expr, low, high, .. } => {
                expr.walk_mut(visit);
                low.walk_mut(visit);
                high.walk_mut(visit);
            }
            Expr::Like { expr, pattern, .. } => {
                expr.walk_mut(visit);
                pattern.walk_mut(visit);
            }
            Expr::Case { operand, whens, otherwise, .. } => {
                operand.iter_mut().for_each(|e| e.walk_mut(visit));
                for (when, then) in whens {
                    when.walk_mut(visit);
                    then.walk_mut(visit);
                }
                otherwise.iter_mut().for_each(|e| e.walk_mut(visit));
            }
        }
    }

    /// Whether any part satisfies `test`.
    pub fn any(&self, test: impl Fn(&Expr) -> bool) -> bool {
        let mut found = false;
        self.walk(&mut |e| found |= test(e));
        found
    }
    /// The same value for every row of one execution.
    pub fn is_constant(&self) -> bool {
        !self.any(|e| match e {
            Expr::Column(_) | Expr::NewColumn(_) | Expr::Aggregate(..) => true,
            Expr::Call(f, ..) => f.varies(),
            Expr::UserVariable(_, _, varies) => *varies,
            Expr::Stored(stored, _) => !stored.is_reading,
            _ => false,
        })
    }
    pub fn has_param(&self) -> bool {
        self.any(|e| matches!(e, Expr::Param(_) | Expr::Variable(..)))
    }
    /// Whether its kind is another one with other literals in it, so that a plan for all literals cannot say it.
    pub fn kind_needs_params(&self) -> bool {
        const MORE_THAN_ALL: usize = 1024;
        self.has_param() && self.kind(&[]) != self.kind(&[Kind::Int; MORE_THAN_ALL])
    }
    /// Whether its kind may be another at the next execution.
    pub fn has_user_variable(&self) -> bool {
        self.any(|e| matches!(e, Expr::UserVariable(..)))
    }
    /// Table columns used, unsorted.
    pub fn columns(&self, out: &mut Vec<u16>) {
        self.walk(&mut |e| {
            if let Expr::Column(c) = e {
                out.push(c.slot);
            }
        });
    }
    /// Moves column numbers to their places in a projection.
    pub fn project(&mut self, columns: &[u16]) {
        self.walk_mut(&mut |e| {
            if let Expr::Column(c) = e
                && let Some(place) = columns.iter().position(|&n| n == c.slot)
            {
                c.slot = place as u16;
            }
        });
    }
    /// The conjuncts of a condition.
    pub fn conjuncts(self) -> Vec<Expr> {
        match self {
            Expr::And(list) => list.into_iter().flat_map(Expr::conjuncts).collect(),
            other => vec![other],
        }
    }
}
