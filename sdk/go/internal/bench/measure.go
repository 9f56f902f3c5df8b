package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	rounds           = 3
	callsOneByOne    = 1000
	callsAtATime     = 32
	callsOfEach      = 250
	watchCount       = 1000
	watchesReadyTime = 2 * time.Minute
)

// measureCalls returns calls per second of both sides, the best of several rounds: one after the other, 32 at a time, and both together.
func measureCalls(ctx context.Context, s settings) (map[string]any, error) {
	names := []string{"sdk", "raw"}
	sides := map[string]side{}
	for _, name := range names {
		var err error
		if sides[name], err = s.side(name); err != nil {
			return nil, err
		}
		// The first call connects.
		if err := sides[name].call(ctx); err != nil {
			return nil, err
		}
	}
	all, single, concurrent := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for range rounds {
		for _, name := range names {
			one, err := timed(1, callsOneByOne, func() error { return sides[name].call(ctx) })
			if err != nil {
				return nil, err
			}
			many, err := timed(callsAtATime, callsOfEach, func() error { return sides[name].call(ctx) })
			if err != nil {
				return nil, err
			}
			single[name] = max(single[name], callsOneByOne/one.Seconds())
			concurrent[name] = max(concurrent[name], callsAtATime*callsOfEach/many.Seconds())
			all[name] = max(all[name], (callsOneByOne+callsAtATime*callsOfEach)/(one+many).Seconds())
		}
	}
	return map[string]any{"calls": all, "callsOneByOne": single, "callsConcurrent": concurrent}, nil
}

// timed returns the time that workers need for this number of calls each.
func timed(workers, calls int, call func() error) (time.Duration, error) {
	var running sync.WaitGroup
	failures := make(chan error, workers)
	start := time.Now()
	for range workers {
		running.Go(func() {
			for range calls {
				if err := call(); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	running.Wait()
	select {
	case err := <-failures:
		return 0, err
	default:
		return time.Since(start), nil
	}
}

// measureWatches returns by how many bytes the resident memory of this process grows by open watches that are past their snapshot.
func measureWatches(ctx context.Context, s settings, name string) (int64, error) {
	watcher, err := s.side(name)
	if err != nil {
		return 0, err
	}
	if err := watcher.call(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, watchesReadyTime)
	defer cancel()
	before, err := resident()
	if err != nil {
		return 0, err
	}
	ready, failures := make(chan struct{}, watchCount), make(chan error, watchCount)
	for number := range watchCount {
		go func() { failures <- watcher.watch(ctx, number, func() { ready <- struct{}{} }) }()
	}
	for range watchCount {
		select {
		case <-ready:
		case err := <-failures:
			return 0, fmt.Errorf("a watch ended: %w", err)
		case <-ctx.Done():
			return 0, fmt.Errorf("not all watches have their snapshot after %s", watchesReadyTime)
		}
	}
	after, err := resident()
	return after - before, err
}

// resident returns the resident memory of this process in bytes, without garbage.
func resident() (int64, error) {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("cannot measure on %s: %w", runtime.GOOS, err)
	}
	var total, pages int64
	if _, err := fmt.Fscan(bytes.NewReader(text), &total, &pages); err != nil {
		return 0, err
	}
	return pages * int64(os.Getpagesize()), nil
}
