//! The cells of the matrix.

use bindery_api::v1alpha2::{InformerScope, Isolation, Scope};

use crate::kinds::Kind;

/// One way of placing an API's objects and of watching them.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Name of the template, of the binding, of the consumers' namespace, and the beginning of the API's group.
    pub(crate) name: &'static str,
    pub(crate) informers: InformerScope,
    pub(crate) place: Place,
    pub(crate) status_subresource: bool,
}

/// Where the copies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Namespaced on both sides: in the mapped namespace.
    Mapped,
    /// Cluster-scoped on both sides, of the same name; the first writer owns it.
    None,
    /// The same; whoever writes last owns it.
    NoneLastWins,
    /// Cluster-scoped on both sides, under the contract's name and their own.
    Prefixed,
    /// Cluster-scoped on the consumer, in the contract namespace.
    Contract,
    /// Cluster-scoped on the consumer, in the namespace that is mapped for the one that the template names.
    Beside,
}

const fn cell(name: &'static str, informers: InformerScope, place: Place) -> Cell {
    Cell {
        name,
        informers,
        place,
        status_subresource: true,
    }
}

pub(crate) static NN: Cell = cell("nn", InformerScope::Namespaced, Place::Mapped);
pub(crate) static NC: Cell = cell("nc", InformerScope::Cluster, Place::Mapped);
pub(crate) static NONE: Cell = cell("none", InformerScope::Namespaced, Place::None);
pub(crate) static LAST_WINS: Cell = cell("lastwins", InformerScope::Namespaced, Place::NoneLastWins);
pub(crate) static PREFIXED: Cell = cell("prefixed", InformerScope::Namespaced, Place::Prefixed);
pub(crate) static NAMESPACED: Cell = cell("namespaced", InformerScope::Namespaced, Place::Contract);
pub(crate) static BESIDE: Cell = cell("beside", InformerScope::Namespaced, Place::Beside);
pub(crate) static NONE_WIDE: Cell = cell("none-wide", InformerScope::Cluster, Place::None);
pub(crate) static PREFIXED_WIDE: Cell = cell("prefixed-wide", InformerScope::Cluster, Place::Prefixed);
pub(crate) static NAMESPACED_WIDE: Cell = cell("namespaced-wide", InformerScope::Cluster, Place::Contract);
pub(crate) static CONVERTED_WIDE: Cell = cell("converted", InformerScope::Cluster, Place::Beside);
pub(crate) static BARE: Cell = Cell {
    status_subresource: false,
    ..cell("bare", InformerScope::Namespaced, Place::Mapped)
};

pub(crate) static ALL: [&Cell; 12] = [
    &NN,
    &NC,
    &NONE,
    &LAST_WINS,
    &PREFIXED,
    &NAMESPACED,
    &BESIDE,
    &NONE_WIDE,
    &PREFIXED_WIDE,
    &NAMESPACED_WIDE,
    &CONVERTED_WIDE,
    &BARE,
];

/// Those that can be bound at once without a watch that begins anew: claims of `NONE_WIDE` are served in another place than
/// those of other cells over the same provider, and as bindings come, the one watch of both does.
pub(crate) fn together() -> impl Iterator<Item = &'static Cell> {
    ALL.into_iter().filter(|cell| cell.name != NONE_WIDE.name)
}

// === impl Cell ===

impl Cell {
    /// The API's group, which no other cell has.
    pub(crate) fn group(&self) -> String {
        format!("{}.wildwest.dev", self.name)
    }

    /// What is claimed with the API.
    pub(crate) fn claimed(&self) -> Vec<Kind> {
        let mut kinds = vec![Kind::ConfigMap, Kind::Secret, Kind::ServiceAccount];
        if self.place == Place::Mapped && self.status_subresource {
            kinds.push(Kind::Horse);
        }
        kinds
    }

    /// Whether both consumers write under the same names on the provider.
    pub(crate) fn shares_names(&self) -> bool {
        matches!(self.place, Place::None | Place::NoneLastWins)
    }

    pub(crate) fn consumer_scope(&self) -> Scope {
        match self.place {
            Place::Mapped => Scope::Namespaced,
            _ => Scope::Cluster,
        }
    }

    pub(crate) fn provider_scope(&self) -> Scope {
        match self.place {
            Place::Mapped | Place::Contract | Place::Beside => Scope::Namespaced,
            Place::None | Place::NoneLastWins | Place::Prefixed => Scope::Cluster,
        }
    }

    pub(crate) fn isolation(&self) -> Isolation {
        match self.place {
            Place::None | Place::NoneLastWins => Isolation::None,
            Place::Mapped | Place::Prefixed => Isolation::Prefixed,
            Place::Contract | Place::Beside => Isolation::Namespaced,
        }
    }

    /// Whether consumers watch the API cluster-wide on the provider, and so can read one another's copies.
    pub(crate) fn is_watched_wide(&self) -> bool {
        self.provider_scope() == Scope::Cluster
            || (self.place == Place::Mapped && self.informers == InformerScope::Cluster)
    }

    /// Whether its template maps a namespace from the start, which no other cell uses.
    pub(crate) fn is_preseeded(&self) -> bool {
        self.place == Place::Prefixed && self.informers == InformerScope::Namespaced
    }

    /// Whether no consumer may read another's claimed Secrets.
    pub(crate) fn hides_secrets(&self) -> bool {
        !self.shares_names()
    }
}
