//! What an administrator does at Proxmox' own console, past its API: causes of trouble, and their cures.
//!
//! For [`ProxmoxHandle::change`](super::ProxmoxHandle::change).

use super::furnish;
use super::site::{Secret, SiteVm};
use super::state::State;

impl State {
    /// Fills a storage to the last byte with what is not listed; `false` when there is no such storage.
    pub fn fill_storage(&mut self, name: &str) -> bool {
        let Some(storage) = self.storages.get_mut(name) else { return false };
        storage.reserved = storage.total;
        true
    }

    /// Takes away all that fills a storage and is not listed.
    pub fn clear_storage(&mut self, name: &str) -> bool {
        let Some(storage) = self.storages.get_mut(name) else { return false };
        storage.reserved = 0;
        true
    }

    /// A storage gets slow: only so many copies can be made on it at once. `None` mends it.
    pub fn limit_copies(&mut self, name: &str, most: Option<usize>) -> bool {
        self.storages.get_mut(name).map(|storage| storage.copies = most).is_some()
    }

    /// Moves a virtual machine to another host, as a migration does; its disks are on storages that both have.
    pub fn move_to_host(&mut self, vmid: u32, host: &str) -> bool {
        let there = self.nodes.contains_key(host);
        self.vms.get_mut(&vmid).filter(|_| there).map(|vm| host.clone_into(&mut vm.node)).is_some()
    }

    /// Gives a token another secret.
    pub fn set_token_secret(&mut self, user: &str, token: &str, secret: &str) -> bool {
        let held = self.users.get_mut(user).and_then(|user| user.tokens.get_mut(token));
        held.map(|(value, _)| *value = Secret::new(secret)).is_some()
    }

    /// Gives everybody who has rights on a path this role there instead.
    pub fn set_role(&mut self, path: &str, role: &str) -> bool {
        let mut found = false;
        for acl in self.acls.iter_mut().filter(|acl| acl.path == path) {
            acl.role = role.to_owned();
            found = true;
        }
        found
    }

    /// Puts a machine of somebody else there.
    pub fn add_foreign(&mut self, vm: &SiteVm) {
        furnish::add_foreign(self, vm);
    }

    /// Takes a machine of somebody else away, with its disks. Ours have a machine of the world behind them and are removed by
    /// the API.
    pub fn remove_foreign(&mut self, vmid: u32) -> bool {
        let foreign = self.vms.get(&vmid).is_some_and(|vm| vm.machine.is_none());
        if foreign {
            self.vms.remove(&vmid);
            self.free_all(vmid);
        }
        foreign
    }

    /// Takes a machine of ours away behind its owner's back, with its disks. Its machine in the world is the caller's to
    /// remove.
    pub fn take_away(&mut self, vmid: u32) -> bool {
        let there = self.vms.remove(&vmid).is_some();
        self.free_all(vmid);
        there
    }

    /// Renames a virtual machine or template.
    pub fn rename(&mut self, vmid: u32, name: &str) -> bool {
        let vm = self.vms.get_mut(&vmid);
        vm.map(|vm| vm.config.insert("name".to_owned(), name.to_owned())).is_some()
    }

    /// Gives a virtual machine or template another id; its disks keep their names.
    pub fn move_to_id(&mut self, from: u32, to: u32) -> bool {
        if self.vms.contains_key(&to) {
            return false;
        }
        let vm = self.vms.remove(&from);
        vm.map(|vm| self.vms.insert(to, vm)).is_some()
    }

    /// A host goes down or comes back. Its machines are not touched.
    pub fn set_online(&mut self, host: &str, online: bool) -> bool {
        self.nodes.get_mut(host).map(|node| node.online = online).is_some()
    }

    /// The internet has, or has lost, the image at a URL.
    pub fn set_image(&mut self, image: &super::SiteImage, there: bool) {
        self.images.retain(|known| known.url != image.url);
        if there {
            self.images.push(image.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ProxmoxSite;
    use super::*;

    #[test]
    fn what_is_done_at_the_console_can_be_undone() {
        let site = ProxmoxSite::example();
        let fresh = State::new(&site, 0.0, 1);
        let mut state = fresh.clone();
        assert!(state.fill_storage("ceph-vm") && state.clear_storage("ceph-vm"));
        assert!(state.set_token_secret("root@pam", "butler", "other") && state != fresh);
        assert!(state.set_token_secret("root@pam", "butler", "7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11"));
        assert!(state.limit_copies("ceph-vm", Some(2)) && state.limit_copies("ceph-vm", None));
        assert!(state.move_to_host(9000, "pve3") && state.move_to_host(9000, "pve1"));
        assert!(state.set_online("pve2", false) && state.set_online("pve2", true));
        assert!(state.move_to_id(9000, 9999) && state.move_to_id(9999, 9000));
        assert!(state.set_role("/", "NoAccess") && state.set_role("/", "Administrator"));
        assert_eq!(state, fresh);
        let vm = SiteVm { vmid: 500, name: "prod-cp-0".to_owned(), ..site.foreign[0].clone() };
        state.add_foreign(&vm);
        assert_eq!(state.name_of(500), Some("prod-cp-0"));
        assert!(state.rename(500, "other") && state.remove_foreign(500));
        assert_eq!((state.vmids(), state.volumes()), (fresh.vmids(), fresh.volumes()));
        for nobody in [
            state.move_to_host(9000, "x"),
            state.fill_storage("x"),
            state.set_online("x", true),
            state.remove_foreign(1),
        ] {
            assert!(!nobody);
        }
    }
}
