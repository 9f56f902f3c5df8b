package bindery

import (
	"errors"
	"fmt"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// tracker tracks one watch across its streams: the resume token, and whether a snapshot is complete.
type tracker[T any] struct {
	// token is the resume token; empty if a snapshot is needed.
	token   string
	stage   watchStage
	objects int32
}

// watchStage is what a stream has to send next.
type watchStage int

const (
	// stageExpecting: the stream has to begin with a snapshot.
	stageExpecting watchStage = iota
	// stageSnapshot: a snapshot has begun.
	stageSnapshot
	// stageChanges: changes follow.
	stageChanges
)

// incoming is the event of an answer, before its protocol is checked. All fields are nil for a heartbeat, or an event that this
// build does not know.
type incoming[T any] struct {
	begin    *pb.SnapshotBegin
	applied  *T
	removed  *pb.Removed
	complete *pb.SnapshotComplete
}

// connect prepares for a new stream, and discards an unfinished snapshot. It tells whether the stream resumes.
func (t *tracker[T]) connect() bool {
	t.stage = stageExpecting
	if t.token != "" {
		t.stage = stageChanges
	}
	return t.token != ""
}

// forget drops a token that the server refused, or that came with a breach of the protocol.
func (t *tracker[T]) forget() {
	t.token, t.stage = "", stageExpecting
}

// step takes the next answer; nil if it holds no event. An error says how the server broke the protocol; the stream must then be
// closed.
func (t *tracker[T]) step(in incoming[T], token string) (*WatchEvent[T], error) {
	event, err := t.take(in)
	if err != nil {
		t.forget()
		return nil, err
	}
	if t.stage == stageChanges && token != "" {
		t.token = token
	}
	return event, nil
}

func (t *tracker[T]) take(in incoming[T]) (*WatchEvent[T], error) {
	switch {
	case in.begin != nil:
		t.token, t.stage, t.objects = "", stageSnapshot, 0
		event := &WatchEvent[T]{Type: WatchSnapshotBegin, ResumeRefused: in.begin.GetResumeRefused()}
		if event.ResumeRefused {
			event.RefusedReason = printable(in.begin.GetReason())
		}
		return event, nil
	case in.applied != nil:
		if t.stage == stageExpecting {
			return nil, errors.New("changes came before a snapshot")
		}
		if t.stage == stageSnapshot {
			t.objects++
		}
		return &WatchEvent[T]{Type: WatchApplied, Object: *in.applied}, nil
	case in.removed != nil:
		switch t.stage {
		case stageExpecting:
			return nil, errors.New("changes came before a snapshot")
		case stageSnapshot:
			return nil, errors.New("a snapshot holds a removal")
		}
		return &WatchEvent[T]{Type: WatchRemoved, Removed: in.removed}, nil
	case in.complete != nil:
		if t.stage != stageSnapshot {
			return nil, errors.New("a snapshot ended that had not begun")
		}
		if count := in.complete.GetObjectCount(); count != t.objects {
			return nil, fmt.Errorf("a snapshot counts %d objects and brought %d", count, t.objects)
		}
		t.stage = stageChanges
		return &WatchEvent[T]{Type: WatchSnapshotComplete}, nil
	default:
		return nil, nil
	}
}
