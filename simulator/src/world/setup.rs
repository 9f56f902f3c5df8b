//! The first moments of a world: its clusters, and the processes.

use super::{
    Problem, World, installed,
    process::{ProcessId, ProcessSlot},
};
use crate::{faults::ProcessName, topology::Cluster};

impl World {
    /// Makes all clusters and starts all processes.
    pub(super) fn set_up(&mut self) {
        let topology = self.topology.clone();
        for (number, provider) in topology.provider_numbers().zip(&topology.providers) {
            self.add_installed(Cluster::Provider(number));
            for replica in 1..=provider.replicas {
                self.add_process(ProcessName::Server {
                    provider: number,
                    replica,
                });
            }
        }
        for (number, consumer) in topology.consumer_numbers().zip(&topology.consumers) {
            let cluster = Cluster::Consumer(number);
            self.add_installed(cluster);
            self.start_konnectors(cluster, consumer.replicas);
        }
    }

    /// Starts the konnectors of a cluster.
    pub(super) fn start_konnectors(&mut self, of: Cluster, replicas: u8) {
        for replica in 1..=replicas {
            self.add_process(ProcessName::Konnector { of, replica });
        }
    }

    fn add_process(&mut self, name: ProcessName) {
        let id = ProcessId(self.processes.len());
        self.processes.push(ProcessSlot::new(Some(name), name.to_string()));
        self.start_id(id);
    }

    fn add_installed(&mut self, cluster: Cluster) {
        match installed::take(cluster, !self.processes_install) {
            Ok(api) => self.add_cluster(cluster, api),
            Err(error) => self.problems.push(Problem {
                process: cluster.to_string(),
                what: format!("cannot be installed: {error:#}"),
            }),
        }
    }
}
