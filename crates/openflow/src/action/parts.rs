//! The fields that actions name by a header, without a value.

use super::{Action, Learn, LearnDestination, LearnSource, Observation, Zone};
use crate::instruction::{Instruction, Instructions};
use crate::oxm::OxmHeader;

impl Instructions {
    /// Calls `each` with the header of every field that an action names without a value.
    pub fn for_each_header(&mut self, each: &mut dyn FnMut(&mut OxmHeader)) {
        for instruction in &mut self.0 {
            if let Instruction::ApplyActions(list) | Instruction::WriteActions(list) = instruction {
                of_list(list, each);
            }
        }
    }
}

fn of_list(list: &mut [Action], each: &mut dyn FnMut(&mut OxmHeader)) {
    list.iter_mut().for_each(|action| of_action(action, each));
}

fn of_action(action: &mut Action, each: &mut dyn FnMut(&mut OxmHeader)) {
    match action {
        Action::RegMove(copy) => {
            each(&mut copy.source.header);
            each(&mut copy.destination.header);
        }
        Action::CopyField(copy) => {
            each(&mut copy.source.header);
            each(&mut copy.destination.header);
        }
        Action::RegLoad(load) => each(&mut load.destination.header),
        Action::StackPush(stack) | Action::StackPop(stack) => each(&mut stack.0.header),
        Action::OutputReg(output) => each(&mut output.source.header),
        Action::OutputReg2(output) => each(&mut output.source.header),
        Action::Multipath(multipath) => each(&mut multipath.destination.header),
        Action::BundleLoad(load) => each(&mut load.destination.header),
        Action::CheckPacketLarger(check) => each(&mut check.destination.header),
        Action::Sample4(sample) => {
            for observation in [&mut sample.domain, &mut sample.point] {
                if let Observation::Field(part) = observation {
                    each(&mut part.header);
                }
            }
        }
        Action::Learn(learn) => of_learn(learn, each),
        Action::Learn2(learn) => {
            each(&mut learn.result.header);
            of_learn(&mut learn.learn, each);
        }
        Action::Clone(nest) => of_list(&mut nest.0, each),
        Action::Track(track) => {
            if let Zone::Field(part) = &mut track.zone {
                each(&mut part.header);
            }
            of_list(&mut track.actions, each);
        }
        _ => {}
    }
}

fn of_learn(learn: &mut Learn, each: &mut dyn FnMut(&mut OxmHeader)) {
    for spec in &mut learn.specs {
        if let LearnSource::Field(header, _) = &mut spec.source {
            each(header);
        }
        if let LearnDestination::Match(header, _) | LearnDestination::Load(header, _) = &mut spec.destination
        {
            each(header);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Version;
    use crate::text::parse_instructions;

    #[test]
    fn nested_actions_are_visited() {
        let text =
            "move:reg1[]->reg2[],output:reg3[],clone(push:reg4[]),learn(reg5[]=reg6[],load:reg7[]->reg8[])";
        let mut instructions = parse_instructions(text, Version::V1_3).unwrap();
        let mut names = Vec::new();
        instructions.for_each_header(&mut |header| names.push(header.field().unwrap().name));
        assert_eq!(names, ["reg1", "reg2", "reg3", "reg4", "reg6", "reg5", "reg7", "reg8"]);
    }
}
