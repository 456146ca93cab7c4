//! The etcd clusters of a world: membership and quorum, and nothing of the data. Pure; the world locks it.

use crate::machine::Member;
use std::net::IpAddr;

/// What makes two nodes look for the same cluster: the discovery service's key, or the Kubernetes endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    Discovery { id: String, secret: String },
    Endpoint(String),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct EtcdWorld {
    clusters: Vec<Cluster>,
}

#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) id: u64,
    identity: Identity,
    pub(crate) members: Vec<EtcdMember>,
    /// Grows with every change of membership and every new leader.
    pub(crate) term: u64,
    pub(crate) index: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EtcdMember {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) learner: bool,
    pub(crate) running: bool,
}

/// A newcomer.
#[derive(Debug, Clone)]
pub(crate) struct Newcomer {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

const NOT_ENOUGH: &str = "etcdserver: re-configuration failed due to not enough started members";

impl Cluster {
    fn voters(&self) -> impl Iterator<Item = &EtcdMember> {
        self.members.iter().filter(|member| !member.learner)
    }

    pub(crate) fn has_quorum(&self) -> bool {
        let all = self.voters().count();
        let running = self.voters().filter(|member| member.running).count();
        running > all / 2
    }

    /// The first voter that runs, so long as there is a quorum.
    pub(crate) fn leader(&self) -> Option<u64> {
        self.has_quorum()
            .then(|| self.voters().find(|member| member.running))
            .flatten()
            .map(|member| member.id)
    }

    fn changed(&mut self) {
        self.index += 7;
        self.term += 1;
    }
}

impl EtcdWorld {
    /// How many clusters were ever made: none is forgotten.
    pub(crate) fn made(&self) -> usize {
        self.clusters.len()
    }

    /// All members by name, and whether they vote.
    pub(crate) fn members(&self) -> Vec<(String, bool)> {
        let all = self.clusters.iter().flat_map(|cluster| &cluster.members);
        all.map(|member| (member.name.clone(), !member.learner)).collect()
    }

    pub(crate) fn create(&mut self, cluster: u64, identity: Identity, first: Newcomer) -> Member {
        let member = EtcdMember {
            id: first.id,
            name: first.name,
            address: first.address,
            learner: false,
            running: false,
        };
        let id = member.id;
        self.clusters.push(Cluster { id: cluster, identity, members: vec![member], term: 2, index: 11 });
        Member { cluster, id }
    }

    /// Adds a learner to the cluster with this identity. `None` when there is none with a quorum, or when another learner
    /// is not promoted yet (etcd allows one at a time).
    pub(crate) fn join(&mut self, identity: &Identity, newcomer: Newcomer) -> Option<Member> {
        let cluster =
            self.clusters.iter_mut().find(|cluster| cluster.identity == *identity && cluster.has_quorum())?;
        if cluster.members.iter().any(|member| member.learner && member.name != newcomer.name) {
            return None;
        }
        // A member of this name is an earlier life of the same node.
        cluster.members.retain(|member| member.name != newcomer.name);
        let member = EtcdMember {
            id: newcomer.id,
            name: newcomer.name,
            address: newcomer.address,
            learner: true,
            running: false,
        };
        let id = member.id;
        cluster.members.push(member);
        cluster.changed();
        Some(Member { cluster: cluster.id, id })
    }

    /// The process of a member is up; `None` when the cluster does not know it any more.
    pub(crate) fn start(&mut self, member: Member) -> Option<bool> {
        let found = self.member(member)?;
        found.running = true;
        let learner = found.learner;
        if let Some(cluster) = self.cluster_mut(member.cluster) {
            cluster.term += 1;
        }
        Some(learner)
    }

    pub(crate) fn stop(&mut self, member: Member) {
        if let Some(found) = self.member(member) {
            found.running = false;
        }
    }

    pub(crate) fn promote(&mut self, member: Member) -> bool {
        let quorum = self.cluster(member.cluster).is_some_and(Cluster::has_quorum);
        match self.member(member) {
            Some(found) if quorum && found.running => {
                found.learner = false;
                true
            }
            _ => false,
        }
    }

    /// Removes a member, with etcd's own check that the rest can still decide.
    pub(crate) fn remove(&mut self, cluster: u64, id: u64) -> Result<(), String> {
        let Some(cluster) = self.cluster_mut(cluster) else {
            return Err("etcdserver: member not found".to_string());
        };
        let Some(gone) = cluster.members.iter().find(|member| member.id == id).cloned() else {
            return Err("etcdserver: member not found".to_string());
        };
        if !cluster.has_quorum() {
            return Err("context deadline exceeded".to_string());
        }
        if !gone.learner {
            let rest: Vec<_> = cluster.voters().filter(|member| member.id != id).collect();
            let running = rest.iter().filter(|member| member.running).count();
            if running <= rest.len() / 2 {
                return Err(NOT_ENOUGH.to_string());
            }
        }
        cluster.members.retain(|member| member.id != id);
        cluster.changed();
        Ok(())
    }

    pub(crate) fn cluster(&self, id: u64) -> Option<&Cluster> {
        self.clusters.iter().find(|cluster| cluster.id == id)
    }

    fn cluster_mut(&mut self, id: u64) -> Option<&mut Cluster> {
        self.clusters.iter_mut().find(|cluster| cluster.id == id)
    }

    fn member(&mut self, member: Member) -> Option<&mut EtcdMember> {
        self.cluster_mut(member.cluster)?.members.iter_mut().find(|found| found.id == member.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newcomer(id: u64) -> Newcomer {
        Newcomer { id, name: format!("cp{id}"), address: IpAddr::from([127, 64, 0, 1]) }
    }

    fn identity() -> Identity {
        Identity::Discovery { id: "id".into(), secret: "secret".into() }
    }

    /// Three voters that run.
    fn three() -> EtcdWorld {
        let mut world = EtcdWorld::default();
        let first = world.create(9, identity(), newcomer(1));
        assert_eq!(world.start(first), Some(false));
        for id in [2, 3] {
            let member = world.join(&identity(), newcomer(id)).unwrap();
            assert_eq!(world.start(member), Some(true));
            assert!(world.promote(member));
        }
        world
    }

    #[test]
    fn a_learner_at_a_time() {
        let mut world = EtcdWorld::default();
        let first = world.create(9, identity(), newcomer(1));
        assert!(world.join(&identity(), newcomer(2)).is_none(), "nobody runs yet");
        world.start(first);
        assert!(world.join(&Identity::Endpoint("other".into()), newcomer(2)).is_none());
        let second = world.join(&identity(), newcomer(2)).unwrap();
        assert!(world.join(&identity(), newcomer(3)).is_none(), "member 2 is still a learner");
        assert!(!world.promote(second), "not started");
        world.start(second);
        assert!(world.promote(second));
        assert!(world.join(&identity(), newcomer(3)).is_some());
    }

    #[test]
    fn the_same_name_replaces_the_old_member() {
        let mut world = three();
        let again = Newcomer { name: "cp3".into(), ..newcomer(33) };
        world.join(&identity(), again).unwrap();
        let ids: Vec<u64> = world.cluster(9).unwrap().members.iter().map(|member| member.id).collect();
        assert_eq!(ids, [1, 2, 33]);
    }

    #[test]
    fn quorum_and_leader_go_with_the_members_that_run() {
        let mut world = three();
        assert_eq!(world.cluster(9).unwrap().leader(), Some(1));
        world.stop(Member { cluster: 9, id: 1 });
        assert_eq!(world.cluster(9).unwrap().leader(), Some(2));
        world.stop(Member { cluster: 9, id: 2 });
        assert_eq!(world.cluster(9).unwrap().leader(), None);
        assert_eq!(world.remove(9, 1), Err("context deadline exceeded".to_string()));
    }

    #[test]
    fn the_last_member_can_not_be_removed_and_a_dead_one_can() {
        let mut world = three();
        world.stop(Member { cluster: 9, id: 3 });
        assert_eq!(world.remove(9, 3), Ok(()));
        assert_eq!(world.start(Member { cluster: 9, id: 3 }), None);
        assert_eq!(world.remove(9, 2), Ok(()));
        assert_eq!(world.remove(9, 1), Err(NOT_ENOUGH.to_string()));
        assert_eq!(world.remove(9, 77), Err("etcdserver: member not found".to_string()));
    }
}
