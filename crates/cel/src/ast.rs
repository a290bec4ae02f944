//! Expressions as they were read.

use std::sync::Arc;

/// The deepest tree that is built: every walk over it recurses.
pub const MAX_DEPTH: usize = 250;

/// An expression and where it begins.
#[derive(Debug, Clone)]
pub struct Expr {
    pub at: usize,
    pub depth: usize,
    pub node: Node,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// What an expression is.
#[derive(Debug, Clone)]
pub enum Node {
    Literal(Literal),
    /// With a leading dot it names a variable of the root even if a comprehension has one of that name.
    Ident(Arc<str>),
    Select {
        operand: Box<Expr>,
        field: Arc<str>,
        optional: bool,
    },
    /// `has(a.b)`.
    Has {
        operand: Box<Expr>,
        field: Arc<str>,
    },
    Call {
        function: Arc<str>,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    /// The flag marks optional elements, which are left out when they have no value.
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    Struct {
        name: Arc<str>,
        fields: Vec<(Arc<str>, Expr, bool)>,
    },
    Macro(Box<Macro>),
}

/// What a comprehension makes of a list or a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformMap,
    TransformMapEntry,
    SortBy,
    OptMap,
    OptFlatMap,
    /// `cel.bind(name, range, body)`.
    Bind,
}

#[derive(Debug, Clone)]
pub struct Macro {
    pub fold: Fold,
    pub range: Expr,
    /// One name for elements (or keys of a map), or two for index and element (or key and value).
    pub names: Vec<Arc<str>>,
    pub filter: Option<Expr>,
    pub body: Expr,
}

impl Node {
    /// What it is made of.
    pub fn children(&self) -> impl Iterator<Item = &Expr> {
        let mut children: Vec<&Expr> = Vec::new();
        match self {
            Self::Literal(_) | Self::Ident(_) => {}
            Self::Select { operand, .. } | Self::Has { operand, .. } => children.push(operand),
            Self::Call { target, args, .. } => children.extend(target.as_deref().into_iter().chain(args)),
            Self::List(items) => children.extend(items.iter().map(|(item, _)| item)),
            Self::Map(entries) => children.extend(entries.iter().flat_map(|(key, value, _)| [key, value])),
            Self::Struct { fields, .. } => children.extend(fields.iter().map(|(_, value, _)| value)),
            Self::Macro(fold) => {
                children.extend([&fold.range, &fold.body]);
                children.extend(&fold.filter);
            }
        }
        children.into_iter()
    }
}

impl Expr {
    /// Whether it looks at a field of a variable anywhere.
    pub fn selects(&self, variable: &str, wanted: &str) -> bool {
        let here = match &self.node {
            Node::Select { operand, field, .. } | Node::Has { operand, field } => {
                &**field == wanted && matches!(&operand.node, Node::Ident(name) if &**name == variable)
            }
            _ => false,
        };
        here || self.node.children().any(|child| child.selects(variable, wanted))
    }

    /// Whether it names a variable anywhere.
    pub fn mentions(&self, variable: &str) -> bool {
        matches!(&self.node, Node::Ident(name) if &**name == variable)
            || self.node.children().any(|child| child.mentions(variable))
    }

    /// Whether it is a variable, a field or an element, and nothing is computed.
    pub fn is_plain_access(&self) -> bool {
        match &self.node {
            Node::Ident(_) | Node::Literal(_) => true,
            Node::Select { operand, .. } => operand.is_plain_access(),
            Node::Call { function, args, .. } => &**function == "_[_]" && args.iter().all(Self::is_plain_access),
            _ => false,
        }
    }
}
