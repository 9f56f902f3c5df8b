//! Access to the conditions of all kinds and statuses.

use jiff::Timestamp;

use super::Condition;
use crate::v1alpha2::{
    APIServiceBinding, APIServiceBindingBundle, APIServiceBindingBundleStatus, APIServiceBindingStatus,
    APIServiceExport, APIServiceExportRequest, APIServiceExportRequestStatus, APIServiceExportStatus,
    APIServiceExportTemplate, APIServiceExportTemplateStatus, APIServiceNamespace, APIServiceNamespaceStatus,
    BoundSchema, BoundSchemaStatus, Cluster, ClusterBinding, ClusterBindingStatus, ClusterStatus, Collection,
    CollectionStatus,
};

/// An object or a status with conditions. BindableResourcesRequest does not implement it: its conditions are Kubernetes' own.
pub trait Conditions {
    /// Returns all conditions; none if there is no status yet.
    fn conditions(&self) -> &[Condition];

    /// Returns all conditions for changes; creates the status if there is none yet.
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;

    /// Returns the condition of a type.
    fn condition(&self, type_: &str) -> Option<&Condition> {
        super::get(self.conditions(), type_)
    }

    /// Whether there is a condition of a type with status True.
    fn is_condition_true(&self, type_: &str) -> bool {
        super::is_true(self.conditions(), type_)
    }

    /// As [`set`](super::set).
    fn set_condition(&mut self, condition: Condition, now: Timestamp) -> bool {
        super::set(self.conditions_mut(), condition, now)
    }

    /// As [`remove`](super::remove).
    fn remove_condition(&mut self, type_: &str) -> bool {
        super::remove(self.conditions_mut(), type_)
    }

    /// As [`set_summary`](super::set_summary).
    fn set_ready_summary(&mut self, now: Timestamp) -> bool {
        super::set_summary(self.conditions_mut(), now)
    }
}

impl Conditions for Vec<Condition> {
    fn conditions(&self) -> &[Condition] {
        self
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        self
    }
}

macro_rules! conditions {
    ($($object:ty, $status:ty;)+) => {$(
        impl Conditions for $status {
            fn conditions(&self) -> &[Condition] {
                &self.conditions
            }

            fn conditions_mut(&mut self) -> &mut Vec<Condition> {
                &mut self.conditions
            }
        }

        impl Conditions for $object {
            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |status| status.conditions.as_slice())
            }

            fn conditions_mut(&mut self) -> &mut Vec<Condition> {
                &mut self.status.get_or_insert_default().conditions
            }
        }
    )+};
}

conditions! {
    APIServiceBinding, APIServiceBindingStatus;
    APIServiceBindingBundle, APIServiceBindingBundleStatus;
    APIServiceExport, APIServiceExportStatus;
    APIServiceExportRequest, APIServiceExportRequestStatus;
    APIServiceExportTemplate, APIServiceExportTemplateStatus;
    APIServiceNamespace, APIServiceNamespaceStatus;
    BoundSchema, BoundSchemaStatus;
    Cluster, ClusterStatus;
    ClusterBinding, ClusterBindingStatus;
    Collection, CollectionStatus;
}
