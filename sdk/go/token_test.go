package bindery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOnlyTokensBecomeHeaders(t *testing.T) {
	for token, expect := range map[string]string{
		"":                                    "TokenEmpty",
		"a b":                                 "TokenMalformed",
		"a\r\nx: y":                           "TokenMalformed",
		"tök":                                 "TokenMalformed",
		strings.Repeat("x", tokenLengthMax+1): "TokenTooLong",
	} {
		if value, err := bearer(token); err == nil || err.ReasonString() != expect || value != "" {
			t.Errorf("%q: %v", token, err)
		}
	}
	if value, err := bearer("a.b.c"); value != "Bearer a.b.c" || err != nil {
		t.Error(value, err)
	}
}

func TestNoTokenIsShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "hunter2")
	sources := []TokenSource{StaticToken("hunter2"), TokenFile(path), TokenCommand("sh", "-c", "echo hunter2")}
	for _, source := range sources {
		if token, err := source.Token(t.Context()); token != "hunter2" || err != nil {
			t.Fatal(err)
		}
		client, err := NewClient("https://bind.example.com", WithTokenSource(source))
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []any{source, client, *client, client.settings, *client.settings, conn{client}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
				if shown := fmt.Sprintf(verb, value); strings.Contains(shown, "hunter2") || strings.Contains(shown, "68756e74657232") {
					t.Errorf("%T with %s: %s", value, verb, shown)
				}
			}
		}
	}
}

// write writes a file, and makes the change visible to whoever looks at its time.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeUnseen writes without a change that the file's metadata would show.
func writeUnseen(t *testing.T, path, text string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, text)
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

func expectToken(t *testing.T, source TokenSource, expect string) {
	t.Helper()
	if token, err := source.Token(t.Context()); token != expect || err != nil {
		t.Errorf("%q instead of %q: %v", token, expect, err)
	}
}

func TestAFileIsReadAgainWhenChangedOldOrExpired(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "one\n")
	source := &tokenFile{path: path}
	expectToken(t, source, "one")

	writeUnseen(t, path, "two\n")
	expectToken(t, source, "one")
	source.ForgetToken("another")
	expectToken(t, source, "one")
	source.ForgetToken("one")
	expectToken(t, source, "two")

	writeUnseen(t, path, "six\n")
	source.last.at = source.last.at.Add(-tokenRereadAfter)
	expectToken(t, source, "six")

	write(t, path, "longer\n")
	expectToken(t, source, "longer")
}

// The kubelet writes a projected token by swapping a symbolic link.
func TestAProjectedTokenIsFollowedThroughItsLink(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "1"), "one")
	write(t, filepath.Join(folder, "2"), "two")
	link := filepath.Join(folder, "token")
	if err := os.Symlink("1", link); err != nil {
		t.Fatal(err)
	}
	source := TokenFile(link)
	expectToken(t, source, "one")
	if err := os.Symlink("2", link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
	expectToken(t, source, "two")
}

func TestAMissingFileIsNamed(t *testing.T) {
	_, err := TokenFile("/nonexistent/token").Token(t.Context())
	failure := sourceError(err)
	if failure.ReasonString() != "TokenFileUnreadable" || !strings.Contains(failure.Error(), "/nonexistent/token") ||
		!errors.Is(failure, os.ErrNotExist) {
		t.Error(failure)
	}
}

// counting is a command that prints a text with the number of its runs for $n.
func counting(t *testing.T, text string) TokenSource {
	t.Helper()
	file := filepath.Join(t.TempDir(), "runs")
	return TokenCommand("sh", "-c", `echo x >> "$1"; n=$(wc -l < "$1"); eval "printf '%s' \"$2\""`, "sh", file, text)
}

func TestACommandRunsUntilItsTokenExpires(t *testing.T) {
	credential := func(expires string) string {
		return `{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t-$n\",\"expirationTimestamp\":\"` + expires + `\"}}`
	}
	for name, check := range map[string]struct{ text, second string }{
		"a token":            {"t-$n", "t-1"},
		"a long life":        {credential("2999-01-01T00:00:00Z"), "t-1"},
		"expired":            {credential("2001-01-01T00:00:00Z"), "t-2"},
		"within the margin":  {credential(time.Now().Add(tokenExpiryMargin - time.Second).UTC().Format(time.RFC3339)), "t-2"},
		"outside the margin": {credential(time.Now().Add(tokenExpiryMargin + time.Minute).UTC().Format(time.RFC3339)), "t-1"},
	} {
		t.Run(name, func(t *testing.T) {
			source := counting(t, check.text)
			expectToken(t, source, "t-1")
			expectToken(t, source, check.second)
			source.(TokenForgetter).ForgetToken("another")
			if check.second == "t-1" {
				expectToken(t, source, "t-1")
				source.(TokenForgetter).ForgetToken("t-1")
				expectToken(t, source, "t-2")
			}
		})
	}
}

func TestATokenWithoutAnExpiryIsUsedForAMinute(t *testing.T) {
	for _, output := range []string{"a-token", `{"kind":"ExecCredential","status":{"token":"a-token"}}`} {
		token, err := parseCommandToken(output)
		if err != nil || token.token() != "a-token" {
			t.Fatal(err)
		}
		if now := time.Now(); !token.isCurrent(now.Add(tokenReuse-time.Second)) || token.isCurrent(now.Add(tokenReuse)) {
			t.Error(output)
		}
	}
}

func TestManyCallsRunACommandOnce(t *testing.T) {
	source := counting(t, "t-$n")
	tokens := make(chan string)
	for range 8 {
		go func() {
			token, err := source.Token(t.Context())
			tokens <- fmt.Sprint(token, err)
		}()
	}
	for range 8 {
		if got := <-tokens; got != "t-1<nil>" {
			t.Error(got)
		}
	}
}

func TestWhatACommandPrintsIsNeverInItsError(t *testing.T) {
	for script, expect := range map[string]string{
		"echo hunter2; exit 3":                               "exit status 3",
		"echo hunter2; echo bad hunter2 >&2; exit 3":         "bad …",
		"echo '{\"kind\": \"hunter2\"'":                      "no ExecCredential",
		"echo '{\"kind\":\"ExecCredential\",\"status\":{}}'": "no ExecCredential with a token",
		"echo '{\"kind\":\"Secret\"}'":                       "no ExecCredential with a token",
	} {
		_, err := TokenCommand("sh", "-c", script).Token(t.Context())
		failure := sourceError(err)
		if failure.ReasonString() != "TokenSourceFailed" || !strings.Contains(failure.Error(), expect) ||
			strings.Contains(fmt.Sprintf("%v %+v %#v", failure, failure, failure), "hunter2") {
			t.Errorf("%s: %v", script, failure)
		}
	}
	_, err := TokenCommand("/nonexistent/plugin").Token(t.Context())
	if failure := sourceError(err); !strings.Contains(failure.Error(), "/nonexistent/plugin") {
		t.Error(failure)
	}
}

func TestACommandLearnsWhichVersionIsSpoken(t *testing.T) {
	t.Setenv("KUBERNETES_EXEC_INFO", "")
	os.Unsetenv("KUBERNETES_EXEC_INFO")
	script := `case "$KUBERNETES_EXEC_INFO" in *client.authentication.k8s.io/v1\"*) echo told;; *) echo "$KUBERNETES_EXEC_INFO";; esac`
	expectToken(t, TokenCommand("sh", "-c", script), "told")
	t.Setenv("KUBERNETES_EXEC_INFO", "of-the-user")
	expectToken(t, TokenCommand("sh", "-c", script), "of-the-user")
}

func TestACommandEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := TokenCommand("sh", "-c", "sleep 60").Token(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 30*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestSourcesSayWhetherSomebodyMustLogIn(t *testing.T) {
	out := sourceError(fmt.Errorf("run kubectl bind login: %w", ErrLoggedOut))
	if out.ReasonString() != "LoggedOut" || !errors.Is(out, ErrLoggedOut) {
		t.Error(out)
	}
	if away := sourceError(errors.New("the issuer is away")); away.ReasonString() != "TokenSourceFailed" {
		t.Error(away)
	}
}
