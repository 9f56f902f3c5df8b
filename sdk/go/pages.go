package bindery

import (
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"
)

// pagesMax limits the pages of one list: half a million objects at the default page size.
const pagesMax = 10_000

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

// listAnswer is one page.
type listAnswer interface{ GetNextPageToken() string }

// pages reads pages until one has no token for a next page. An empty page with a token is not the last one.
func pages[Q listRequest, A listAnswer, T any](
	address Address, request Q, turn func(request Q, pageToken string), call func(Q) (A, error), items func(A) []T,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var absent Q
		if request == absent {
			request = request.ProtoReflect().Type().New().Interface().(Q)
		}
		page := proto.CloneOf(request)
		for range pagesMax {
			answer, err := call(page)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range items(answer) {
				if !yield(item, nil) {
					return
				}
			}
			next := answer.GetNextPageToken()
			if next == "" {
				return
			}
			if next == page.GetPageToken() {
				yield(none, protocolError(address, "a page names itself as the next one"))
				return
			}
			turn(page, next)
		}
		yield(none, protocolError(address, fmt.Sprintf("a list has more than %d pages", pagesMax)))
	}
}
