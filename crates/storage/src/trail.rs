//! The last code points of a fragment, for crash reports: storage has no context in which to leave marks, so each fragment keeps its own, one byte
//! each, in one word. A mark costs two instructions.

/// What a fragment was doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Point {
    Insert = 1,
    Push,
    Commit,
    Undo,
    Reclaim,
    Evict,
    Collect,
    Build,
}

const POINTS: [Point; 8] = [
    Point::Insert,
    Point::Push,
    Point::Commit,
    Point::Undo,
    Point::Reclaim,
    Point::Evict,
    Point::Collect,
    Point::Build,
];

/// The last eight, the newest in the low byte.
#[derive(Clone, Copy, Default, Debug)]
pub struct Trail(u64);

impl Trail {
    #[inline]
    pub fn mark(&mut self, point: Point) {
        self.0 = self.0 << 8 | point as u64;
    }
    /// Oldest first.
    pub fn points(self) -> impl Iterator<Item = Point> {
        let bytes = self.0.to_be_bytes();
        bytes.into_iter().filter_map(|byte| POINTS.into_iter().find(|p| *p as u8 == byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_eight_stay_in_order() {
        let mut trail = Trail::default();
        assert_eq!(trail.points().count(), 0);
        for point in POINTS.into_iter().chain([Point::Undo, Point::Push]) {
            trail.mark(point);
        }
        let expected: Vec<Point> = POINTS.into_iter().skip(2).chain([Point::Undo, Point::Push]).collect();
        assert_eq!(trail.points().collect::<Vec<_>>(), expected);
    }
}
