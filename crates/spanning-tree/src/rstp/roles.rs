//! Port Role Selection machine (§17.28).

use super::port::{Port, Source};
use super::vector::Priority;
use super::{Bridge, Role, Times};

impl Bridge {
    /// Selects the roles of all ports if one asks for it; returns whether it does.
    pub(super) fn select_roles(&mut self) -> bool {
        if !self.ports.values().any(|port| port.reselect) {
            return false;
        }
        // `clearReselectTree`
        self.ports.values_mut().for_each(|port| port.reselect = false);
        self.update_roles();
        // `setSelectedTree`
        self.ports.values_mut().for_each(|port| port.selected = true);
        true
    }

    /// The root path priority vector of a port (§17.5).
    fn root_path(&self, port: &Port) -> Option<Priority> {
        let is_own = port.port_priority.bridge.address() == self.id.address();
        let cost = port.port_priority.cost.saturating_add(port.settings.cost);
        (port.info_is == Source::Received && !is_own).then_some(Priority { cost, ..port.port_priority })
    }

    /// `updtRolesTree` (§17.21.25)
    fn update_roles(&mut self) {
        let paths =
            self.ports.iter().filter_map(|(number, port)| Some((self.root_path(port)?, port.id, *number)));
        let best = paths.min().filter(|(path, ..)| *path < Priority::of_bridge(self.id));
        let root_port = best.map(|(.., number)| number);
        match best.and_then(|(path, id, number)| Some((path, id, self.ports.get(&number)?.port_times))) {
            Some((path, id, times)) => {
                (self.root_priority, self.root_port) = (path, id);
                self.root_times = Times { message_age: times.message_age.saturating_add(1), ..times };
            }
            None => {
                self.root_priority = Priority::of_bridge(self.id);
                self.root_port = Default::default();
                self.root_times = self.settings.times();
            }
        }
        let (own, root, root_times) = (self.id, self.root_priority, self.root_times);
        for (number, port) in &mut self.ports {
            port.designated_priority = Priority { bridge: own, port: port.id, ..root };
            port.designated_times = Times { hello_time: super::HELLO_TIME, ..root_times };
            let is_worse = port.designated_priority > port.port_priority;
            (port.selected_role, port.updt_info) = match port.info_is {
                Source::Disabled => (Role::Disabled, false),
                Source::Aged => (Role::Designated, true),
                Source::Mine => {
                    let differs = port.port_priority != port.designated_priority
                        || port.port_times != port.designated_times;
                    (Role::Designated, differs)
                }
                Source::Received if root_port == Some(*number) => (Role::Root, false),
                Source::Received if is_worse && port.port_priority.bridge.address() != own.address() => {
                    (Role::Alternate, false)
                }
                Source::Received if is_worse => (Role::Backup, false),
                Source::Received => (Role::Designated, true),
            };
        }
    }
}
