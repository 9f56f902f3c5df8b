package bindery

import (
	"fmt"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"
)

const (
	// pagesMax limits the pages of one list: half a million objects at the default page size.
	pagesMax = 10_000
	// pageTokensMax is how many of the last page tokens are remembered, to notice a list that goes round.
	pageTokensMax = 16
)

// Collect reads a list to its end.
func Collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var items []T
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// listRequest is a request for one page.
type listRequest interface {
	proto.Message
	comparable
	GetPageToken() string
}

// listPage is one page.
type listPage interface{ GetNextPageToken() string }

// pages reads pages until one has no token for a next page. An empty page with a token is not the last one.
func pages[Q listRequest, P listPage, T any](
	address Address, request Q, setToken func(request Q, pageToken string), call func(Q) (P, error), items func(P) []T,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var absent Q
		if request == absent {
			request = request.ProtoReflect().Type().New().Interface().(Q)
		}
		next := proto.CloneOf(request)
		tokens := []string{next.GetPageToken()}
		for range pagesMax {
			page, err := call(next)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range items(page) {
				if !yield(item, nil) {
					return
				}
			}
			token := page.GetNextPageToken()
			if token == "" {
				return
			}
			if slices.Contains(tokens, token) {
				yield(none, protocolError(address, "the pages of a list go round: a page names itself or a former one as the next"))
				return
			}
			setToken(next, token)
			if tokens = append(tokens, token); len(tokens) > pageTokensMax {
				tokens = tokens[1:]
			}
		}
		yield(none, protocolError(address, fmt.Sprintf("a list has more than %d pages", pagesMax)))
	}
}
