package scale

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// keyValues is an answer of etcd's JSON gateway (https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/) about a range of keys.
type keyValues struct {
	KVs []struct {
		Value []byte `json:"value"`
	} `json:"kvs"`
	More  bool   `json:"more"`
	Count string `json:"count"`
}

// read asks etcd for the keys with a prefix; without values, only for their number.
func (c *cluster) read(ctx context.Context, prefix string, values bool) (answer keyValues, err error) {
	after := []byte(prefix)
	after[len(after)-1]++ // the first key after the prefix
	body, err := json.Marshal(map[string]any{
		"key": base64.StdEncoding.EncodeToString([]byte(prefix)), "range_end": base64.StdEncoding.EncodeToString(after), "count_only": !values,
	})
	if err != nil {
		return answer, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server.EtcdURL("v3", "kv", "range"), bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("etcd answers %s", response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return answer, fmt.Errorf("etcd's answer: %w", err)
	}
	if answer.More {
		return answer, fmt.Errorf("etcd gave only %d keys", len(answer.KVs))
	}
	return answer, nil
}

// count returns the number of objects in etcd below a prefix.
func (c *cluster) count(ctx context.Context, prefix string) (int, error) {
	answer, err := c.read(ctx, prefix, false)
	if err != nil || answer.Count == "" { // zero is left out
		return 0, err
	}
	return strconv.Atoi(answer.Count)
}

// storedSizes returns the sizes in bytes of the objects in etcd below a prefix, smallest first. The sizes include managed fields.
func (c *cluster) storedSizes(ctx context.Context, prefix string) ([]int, error) {
	answer, err := c.read(ctx, prefix, true)
	var sizes []int
	for _, kv := range answer.KVs {
		sizes = append(sizes, len(kv.Value))
	}
	slices.Sort(sizes)
	return sizes, err
}
