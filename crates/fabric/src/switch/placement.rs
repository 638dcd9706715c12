//! Where a queue's work is best done: hints that the assignment of queues to workers honours where it can.

/// A hint: the CPU or the NUMA node that a queue's memory or device is near to. The default is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Placement {
    /// The worker on this CPU, if there is one.
    pub cpu: Option<usize>,
    /// Else a worker on this NUMA node, if there is one.
    pub node: Option<usize>,
}

impl Placement {
    /// How well a worker on `cpu` and `node` suits: larger is better.
    pub(crate) fn suits(&self, cpu: Option<usize>, node: Option<usize>) -> u8 {
        match () {
            () if self.cpu.is_some() && self.cpu == cpu => 2,
            () if self.node.is_some() && self.node == node => 1,
            () => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_suits_better_than_a_node() {
        let hint = Placement { cpu: Some(3), node: Some(1) };
        assert_eq!(hint.suits(Some(3), Some(0)), 2);
        assert_eq!(hint.suits(Some(4), Some(1)), 1);
        assert_eq!(hint.suits(Some(4), Some(0)), 0);
        assert_eq!(Placement::default().suits(None, None), 0);
    }
}
