package scale

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// storedSizes returns the sizes in bytes of the objects in etcd below a prefix, smallest first. The sizes include managed fields. The
// request uses etcd's JSON gateway (https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/).
func (c *cluster) storedSizes(ctx context.Context, prefix string) ([]int, error) {
	after := []byte(prefix)
	after[len(after)-1]++ // the first key after the prefix
	body, err := json.Marshal(map[string]string{
		"key": base64.StdEncoding.EncodeToString([]byte(prefix)), "range_end": base64.StdEncoding.EncodeToString(after),
	})
	if err != nil {
		return nil, err
	}
	address := c.server.EtcdURL("v3", "kv", "range")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		KVs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
		More bool `json:"more"`
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("etcd answers %s", response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("etcd's answer: %w", err)
	}
	if answer.More {
		return nil, fmt.Errorf("etcd gave only %d keys", len(answer.KVs))
	}
	var sizes []int
	for _, kv := range answer.KVs {
		sizes = append(sizes, len(kv.Value))
	}
	slices.Sort(sizes)
	return sizes, nil
}
