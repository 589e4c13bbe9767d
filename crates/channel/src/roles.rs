//! Master election (OpenFlow 1.3.5 §6.3.7, §7.3.9).
//!
//! A switch has one [`Roles`] for all its connections. It stores the master and the highest
//! generation ID so far; each connection stores its own role.

use tapswitch_openflow::{ControllerRole, ErrorKind, RoleMessage};

/// ID of a connection, assigned by the owner of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// The master of a switch and the generation ID of its election.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    master: Option<ConnectionId>,
    /// `None` until the first request for master or slave.
    generation_id: Option<u64>,
}

/// Result of a role request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleChange {
    /// The reply, with the new role of the requester.
    pub reply: RoleMessage,
    /// The previous master, which becomes slave.
    pub demoted: Option<ConnectionId>,
}

impl Roles {
    /// Without a master.
    pub const fn new() -> Self {
        Self { master: None, generation_id: None }
    }

    /// Handles a role request of `connection`, whose role is `current`.
    pub fn handle_request(
        &mut self,
        connection: ConnectionId,
        current: ControllerRole,
        request: RoleMessage,
    ) -> Result<RoleChange, ErrorKind> {
        let elects = matches!(request.role, ControllerRole::Master | ControllerRole::Slave);
        if elects {
            self.take_generation(request.generation_id)?;
        }
        let role = match request.role {
            ControllerRole::NoChange => current,
            role => role,
        };
        let demoted = match role {
            ControllerRole::Master => self.master.replace(connection),
            _ => {
                self.handle_closed(connection);
                None
            }
        };
        let generation_id = self.generation_id.unwrap_or(NO_GENERATION);
        Ok(RoleChange {
            reply: RoleMessage { role, generation_id },
            demoted: demoted.filter(|&other| other != connection),
        })
    }

    /// Handles the end of a connection, or its stepping down: if it was the master, there is none.
    pub fn handle_closed(&mut self, connection: ConnectionId) {
        self.master.take_if(|master| *master == connection);
    }

    /// The current master.
    pub const fn master(&self) -> Option<ConnectionId> {
        self.master
    }

    /// Accepts a generation ID unless it is older than the last one, with wrap-around.
    fn take_generation(&mut self, generation_id: u64) -> Result<(), ErrorKind> {
        let is_stale = self
            .generation_id
            .is_some_and(|latest| generation_id.wrapping_sub(latest) > i64::MAX as u64);
        if is_stale {
            return Err(ErrorKind::OFPRRFC_STALE);
        }
        self.generation_id = Some(generation_id);
        Ok(())
    }
}

/// Generation ID in a reply before any election.
const NO_GENERATION: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use ControllerRole::{Equal, Master, NoChange, Slave};

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    fn ask(
        roles: &mut Roles,
        connection: ConnectionId,
        role: ControllerRole,
        generation_id: u64,
    ) -> Result<(ControllerRole, u64, Option<ConnectionId>), ErrorKind> {
        let request = RoleMessage { role, generation_id };
        let change = roles.handle_request(connection, Equal, request)?;
        Ok((change.reply.role, change.reply.generation_id, change.demoted))
    }

    #[test]
    fn a_new_master_demotes_the_old_one() {
        let mut roles = Roles::new();
        assert_eq!(ask(&mut roles, A, Master, 1), Ok((Master, 1, None)));
        assert_eq!(ask(&mut roles, A, Master, 1), Ok((Master, 1, None)));
        assert_eq!(ask(&mut roles, B, Master, 2), Ok((Master, 2, Some(A))));
        assert_eq!(roles.master(), Some(B));
    }

    #[test]
    fn stale_elections_are_refused_even_around_the_end_of_numbers() {
        let mut roles = Roles::new();
        assert_eq!(ask(&mut roles, A, Master, u64::MAX), Ok((Master, u64::MAX, None)));
        assert_eq!(ask(&mut roles, B, Master, 3), Ok((Master, 3, Some(A))));
        let stale = Err(ErrorKind::OFPRRFC_STALE);
        assert_eq!(ask(&mut roles, A, Master, u64::MAX), stale);
        assert_eq!(ask(&mut roles, A, Slave, 2), stale);
        assert_eq!(roles.master(), Some(B));
    }

    #[test]
    fn equal_and_no_change_need_no_election() {
        let mut roles = Roles::new();
        assert_eq!(ask(&mut roles, A, NoChange, 0), Ok((Equal, u64::MAX, None)));
        assert_eq!(ask(&mut roles, A, Master, 9), Ok((Master, 9, None)));
        assert_eq!(ask(&mut roles, B, Equal, 0), Ok((Equal, 9, None)));
        assert_eq!(ask(&mut roles, A, Equal, 0), Ok((Equal, 9, None)));
        assert_eq!(roles.master(), None);
    }

    #[test]
    fn a_master_that_is_gone_demotes_nobody() {
        let mut roles = Roles::new();
        assert_eq!(ask(&mut roles, A, Master, 1), Ok((Master, 1, None)));
        roles.handle_closed(B);
        assert_eq!(roles.master(), Some(A));
        roles.handle_closed(A);
        assert_eq!(ask(&mut roles, B, Master, 2), Ok((Master, 2, None)));
    }
}
