package main

import (
	"context"
	"fmt"
	"math"
	"time"

	bindery "kube-bind.io/bindery/sdk/go"
	"kube-bind.io/bindery/sdk/go/internal/timing"
)

// clientSettings are the settings of a client.
type clientSettings struct {
	Address          string         `json:"address"`
	CAPEM            string         `json:"caPem"`
	CAFile           string         `json:"caFile"`
	ServerName       string         `json:"serverName"`
	AllowPlaintext   bool           `json:"allowPlaintext"`
	Token            *tokenSettings `json:"token"`
	TimeoutMs        *int64         `json:"timeoutMs"`
	AttemptTimeoutMs *int64         `json:"attemptTimeoutMs"`
	Retry            *retrySettings `json:"retry"`
	Reconnect        *retrySettings `json:"reconnect"`
	SilenceMs        int64          `json:"silenceMs"`
	UserAgent        string         `json:"userAgent"`
}

// tokenSettings name one token source.
type tokenSettings struct {
	Static    *string  `json:"static"`
	File      *string  `json:"file"`
	Exec      []string `json:"exec"`
	TimeoutMs int64    `json:"timeoutMs"`
	Function  string   `json:"function"`
}

type retrySettings struct {
	Attempts int   `json:"attempts"`
	BaseMs   int64 `json:"baseMs"`
	CapMs    int64 `json:"capMs"`
}

func (s clientSettings) build(out *outcome) (*bindery.Client, error) {
	options := []bindery.Option{bindery.WithWatchTiming(s.timing())}
	if s.TimeoutMs != nil {
		options = append(options, bindery.WithTimeout(milliseconds(*s.TimeoutMs)))
	}
	if s.AttemptTimeoutMs != nil {
		options = append(options, bindery.WithAttemptTimeout(milliseconds(*s.AttemptTimeoutMs)))
	}
	if s.CAPEM != "" {
		options = append(options, bindery.WithCAPEM([]byte(s.CAPEM)))
	}
	if s.CAFile != "" {
		options = append(options, bindery.WithCAFile(s.CAFile))
	}
	if s.ServerName != "" {
		options = append(options, bindery.WithServerName(s.ServerName))
	}
	if s.AllowPlaintext {
		options = append(options, bindery.WithPlaintext())
	}
	if s.UserAgent != "" {
		options = append(options, bindery.WithUserAgent(s.UserAgent))
	}
	if s.Retry != nil {
		options = append(options, bindery.WithRetry(bindery.RetryPolicy{
			Attempts: s.Retry.Attempts, Base: milliseconds(s.Retry.BaseMs), Cap: milliseconds(s.Retry.CapMs),
		}))
	}
	if s.Token != nil {
		source, err := s.Token.source()
		if err != nil {
			return nil, err
		}
		out.show(source)
		options = append(options, bindery.WithTokenSource(source))
	}
	client, err := bindery.NewClient(s.Address, options...)
	if err != nil {
		return nil, err
	}
	out.show(client, *client)
	return client, nil
}

func (t *tokenSettings) source() (bindery.TokenSource, error) {
	switch {
	case t.Static != nil:
		return bindery.StaticToken(*t.Static), nil
	case t.File != nil:
		return bindery.TokenFile(*t.File), nil
	case len(t.Exec) > 0 && t.TimeoutMs > 0:
		return bindery.TokenCommandWithin(timing.Command{Limit: milliseconds(t.TimeoutMs)}, t.Exec[0], t.Exec[1:]...), nil
	case len(t.Exec) > 0:
		return bindery.TokenCommand(t.Exec[0], t.Exec[1:]...), nil
	default:
		return function(t.Function)
	}
}

// function is a token source of the user's.
func function(name string) (bindery.TokenSource, error) {
	switch name {
	case "slow":
		return bindery.TokenFunc(func(context.Context) (string, error) { select {} }), nil
	case "throws":
		return bindery.TokenFunc(func(context.Context) (string, error) {
			return "", fmt.Errorf("hunter2: %w", context.DeadlineExceeded)
		}), nil
	case "static-value":
		return bindery.TokenFunc(func(context.Context) (string, error) { return "static-value", nil }), nil
	default:
		return nil, fmt.Errorf("there is no token source %q", name)
	}
}

// timing is the timing of watches.
func (s clientSettings) timing() timing.Watch {
	times := timing.Default()
	if s.Reconnect != nil {
		times.ReconnectBase, times.ReconnectCap = milliseconds(s.Reconnect.BaseMs), milliseconds(s.Reconnect.CapMs)
	}
	if s.SilenceMs > 0 {
		times.Silence = milliseconds(s.SilenceMs)
	}
	return times
}

// milliseconds makes a duration, which is the longest one for counts that none can hold.
func milliseconds(count int64) time.Duration {
	if count > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(count) * time.Millisecond
}
