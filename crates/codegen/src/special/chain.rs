//! Two stages as one: a packet that the first stage sends to one port goes on with the second in the same pass.
//!
//! The second stage has no parser, so headers and variables go on as they are: neither a copy nor a queue is needed, if
//! sending is the last thing that the first stage does. [`joined`] finds such sends; they keep [`Via::Next`], and every
//! other way to the second stage names it ([`Via::Stage`]).
//!
//! Invariant: in a joined program, a [`Via::Next`] of the first stage is the last statement that the stage executes, and
//! has one port as its destination.

use pipeline::ir::{BlockId, Dest, Packet, Program, StageId, Stmt, Via};

use super::each;

/// The stage behind the first.
pub(crate) const SECOND: StageId = StageId(1);

/// Whether a program has residuals, as far as that follows from its stages.
pub(crate) fn has_residuals(program: &Program) -> bool {
    program.stages.len() == 1 || last_block(program).is_some()
}

/// The program with its sends told apart; `None` if its stages cannot be joined.
pub(super) fn joined(program: &Program) -> Option<Program> {
    let last = last_block(program)?;
    let mut program = program.clone();
    let (_, body) = program.blocks.get_mut(last.index())?;
    name_stage(body, true);
    Some(program)
}

/// The block with which the first of two stages ends, if the second can take its place.
fn last_block(program: &Program) -> Option<BlockId> {
    let [first, second] = &program.stages[..] else { return None };
    let follows = first.next == Some(SECOND) && second.next.is_none() && second.parser.is_none();
    if !follows || first.deparser.is_some_and(|block| second.deparser != Some(block)) {
        return None;
    }
    let last = first.finish.unwrap_or(first.control);
    let others = [Some(second.control), second.finish, second.deparser, first.deparser];
    let of_first = first.finish.map(|_| first.control);
    if others.into_iter().chain([of_first]).flatten().any(|block| block == last) {
        return None;
    }
    // Whatever else leads to the block, or to the next stage, is not at the first stage's end.
    let mut apart = true;
    let blocks = program.blocks.iter().enumerate().map(|(i, (_, body))| (BlockId::at(i) == last, body));
    for (is_last, body) in blocks.chain(program.actions.iter().map(|action| (false, &action.body))) {
        each(body, &mut |stmt| {
            apart &= match stmt {
                Stmt::Call(block) | Stmt::Goto(block) => *block != last,
                Stmt::Send(send) => is_last || send.via != Via::Next,
                _ => true,
            }
        });
    }
    apart.then_some(last)
}

/// Names the second stage where a packet that is sent does not simply go on. `ends`: nothing follows the statements.
fn name_stage(body: &mut [Stmt], ends: bool) {
    let count = body.len();
    for (i, stmt) in body.iter_mut().enumerate() {
        let ends = ends && i + 1 == count;
        match stmt {
            Stmt::Send(send) if send.via == Via::Next => {
                let goes_on = ends
                    && matches!(send.to, Dest::Port(_))
                    && send.packet == Packet::Current
                    && send.instance == 0;
                send.via = if goes_on { Via::Next } else { Via::Stage(SECOND) };
            }
            Stmt::If(_, yes, no) => [yes, no].into_iter().for_each(|body| name_stage(body, ends)),
            Stmt::Switch(_, cases, default) => {
                cases.iter_mut().for_each(|(_, body)| name_stage(body, ends));
                name_stage(default, ends);
            }
            Stmt::Atomic(body) => name_stage(body, false),
            Stmt::Apply(_, applied) => {
                let of_actions = applied.actions.iter_mut().map(|(_, body)| body);
                of_actions.for_each(|body| name_stage(body, ends));
                // What an action is followed by runs behind what a hit or a miss is followed by.
                [&mut applied.hit, &mut applied.miss].into_iter().for_each(|body| name_stage(body, false));
                name_stage(&mut applied.other, ends);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Ways of the sends in the block that ends the first stage; `None` if the stages are not joined.
    fn ways(finish: &str, control: &str, second: &str) -> Option<Vec<Via>> {
        let source = format!(
            "program p {{
              replicas lists;
              var port: bit<32>;
              parser q {{ state start {{ goto accept; }} }}
              block control {{ {control} }}
              block finish {{ {finish} }}
              block egress {{ send current port port direct; }}
              stage one {{ parser q; control control; finish finish; next two; }}
              stage two {{ {second} control egress; }}
            }}"
        );
        let program = joined(&pipeline::text::parse(&source).unwrap())?;
        let mut ways = vec![];
        each(&program.blocks.get(1)?.1, &mut |stmt| {
            if let Stmt::Send(send) = stmt {
                ways.push(send.via);
            }
        });
        Some(ways)
    }

    #[test]
    fn the_last_send_to_a_port_goes_on() {
        let stage = Via::Stage(SECOND);
        assert_eq!(ways("send current port port;", "", ""), Some(vec![Via::Next]));
        let two = "send current port port; send current port port;";
        assert_eq!(ways(two, "", ""), Some(vec![stage, Via::Next]));
        let branches =
            "if (port == 32w1) { send current replicas lists[port]; } else { send current port port; }";
        assert_eq!(ways(branches, "", ""), Some(vec![stage, Via::Next]));
        let more = "if (port == 32w1) { send current port port; } port = 32w1;";
        assert_eq!(ways(more, "", ""), Some(vec![stage]));
        assert_eq!(ways("send original port port;", "", ""), Some(vec![stage]));
        assert_eq!(ways("send current port port instance 4;", "", ""), Some(vec![stage]));
    }

    #[test]
    fn other_stages_are_not_joined() {
        assert_eq!(ways("", "send current port port;", ""), None);
        assert_eq!(ways("send current port port;", "call finish;", ""), None);
        assert_eq!(ways("send current port port;", "", "parser q;"), None);
    }
}
