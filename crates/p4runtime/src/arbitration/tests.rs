//! Arbitration against a model that keeps the history of claims and follows the rules word by word.

use proptest::prelude::*;

use super::*;

const STREAMS: u64 = 6;

#[derive(Debug, Clone)]
enum Step {
    Claim { stream: StreamId, role: u64, election: Option<u128> },
    Leave { stream: StreamId },
    Write { role: u64, election: Option<u128> },
}

fn election() -> impl Strategy<Value = Option<u128>> {
    // Few ids, so that they meet; one that needs both halves of the message's integer.
    prop::option::weighted(0.8, prop_oneof![0_u128..5, Just(1 << 64)])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..STREAMS, 0..3_u64, election())
            .prop_map(|(stream, role, election)| Step::Claim { stream, role, election }),
        2 => (0..STREAMS).prop_map(|stream| Step::Leave { stream }),
        2 => (0..3_u64, election()).prop_map(|(role, election)| Step::Write { role, election }),
    ]
}

/// A live stream, and what it was told last.
#[derive(Debug, Clone, Copy)]
struct Live {
    role: u64,
    election: Option<u128>,
    told: (Standing, Option<u128>),
}

/// Streams in a list, and every election id that was ever accepted.
#[derive(Debug, Default)]
struct Model {
    live: BTreeMap<StreamId, Live>,
    accepted: Vec<(u64, u128)>,
}

impl Model {
    fn highest(&self, role: u64) -> Option<u128> {
        self.accepted.iter().filter(|(of, _)| *of == role).map(|(_, election)| *election).max()
    }

    fn primary(&self, role: u64) -> Option<StreamId> {
        let highest = self.highest(role)?;
        self.live
            .iter()
            .find(|(_, live)| live.role == role && live.election == Some(highest))
            .map(|(stream, _)| *stream)
    }

    fn standing(&self, stream: StreamId, role: u64) -> (Standing, Option<u128>) {
        let standing = match self.primary(role) {
            Some(primary) if primary == stream => Standing::Primary,
            Some(_) => Standing::Backup,
            None => Standing::Vacant,
        };
        (standing, self.highest(role))
    }
}

fn name(role: u64) -> RoleName {
    RoleName::new("", role)
}

/// Takes the notices, and checks that each live stream of the role knows the truth.
fn notify(model: &mut Model, tested: &Arbitration, role: u64, change: &Change) -> Result<(), TestCaseError> {
    for stream in change.others.iter().chain(&change.primary) {
        let live =
            model.live.get_mut(stream).ok_or_else(|| TestCaseError::fail("a dead stream is notified"))?;
        prop_assert_eq!(live.role, role);
        live.told = tested.standing(*stream, &name(role));
    }
    for (stream, live) in model.live.iter().filter(|(_, live)| live.role == role) {
        prop_assert_eq!(live.told, model.standing(*stream, role), "stream {}", stream);
    }
    prop_assert!(change.primary.is_none() || change.primary == model.primary(role));
    Ok(())
}

fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (mut model, mut tested) = (Model::default(), Arbitration::new(8));
    for step in steps {
        match step {
            Step::Claim { stream, role, election } => {
                // A live stream keeps its role: the stream's own code sees to it.
                let role = model.live.get(&stream).map_or(role, |live| live.role);
                let taken = model
                    .live
                    .iter()
                    .any(|(id, live)| *id != stream && live.role == role && live.election == election);
                let claimed = tested.claim(stream, &name(role), election);
                if let Some(election) = election.filter(|_| taken) {
                    prop_assert_eq!(claimed, Err(Refusal::Duplicate { role: name(role), election }));
                    continue;
                }
                model.accepted.extend(election.map(|election| (role, election)));
                let told = (Standing::Vacant, None);
                model.live.insert(stream, Live { role, election, told });
                let change = claimed.map_err(|error| TestCaseError::fail(error.to_string()))?;
                prop_assert!(change.others.contains(&stream) || change.primary == Some(stream));
                notify(&mut model, &tested, role, &change)?;
            }
            Step::Leave { stream } => {
                let Some(live) = model.live.remove(&stream) else { continue };
                let change = tested.leave(stream, &name(live.role));
                notify(&mut model, &tested, live.role, &change)?;
            }
            Step::Write { role, election } => {
                let may =
                    model.primary(role).is_some() && election.is_some() && election == model.highest(role);
                prop_assert_eq!(tested.check(&name(role), election).is_ok(), may);
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn streams_know_who_is_primary(steps in prop::collection::vec(step(), 1..60)) {
        run(steps)?;
    }
}

#[test]
fn roles_that_nobody_uses_make_room() {
    let mut roles = Arbitration::new(2);
    roles.claim(1, &name(0), Some(9)).unwrap();
    for role in 1..=2 {
        roles.claim(10 + role, &name(role), Some(5)).unwrap();
    }
    assert_eq!(roles.claim(20, &name(3), Some(1)), Err(Refusal::TooManyRoles { limit: 2 }));
    roles.leave(12, &name(2));
    roles.claim(20, &name(3), Some(1)).unwrap();
    assert_eq!(roles.check(&name(2), Some(5)), Err(Refusal::UnknownRole(name(2))));
    roles.check(&name(1), Some(5)).unwrap();
    // The default role is remembered also without streams.
    roles.leave(1, &name(0));
    assert_eq!(roles.check(&name(0), Some(9)), Err(Refusal::NoPrimary { role: name(0), highest: 9 }));
}
