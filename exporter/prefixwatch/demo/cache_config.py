"""The labels of ``vllm:cache_config_info``, release by release."""

from prefixwatch.demo.config import EngineConfig
from prefixwatch.demo.releases import Version

_ENGINE_LABEL = (0, 9, 0)
_POOL_IN_TOKENS = (0, 25, 0)
_EFFECTIVE_BLOCK = (0, 32, 0)

_EARLY = {
    "cache_dtype": "auto",
    "calculate_kv_scales": "False",
    "cpu_offload_gb": "0",
    "gpu_memory_utilization": "0.9",
    "is_attention_free": "False",
    "num_cpu_blocks": "None",
    "sliding_window": "None",
    "swap_space": "4",
}
_LATE = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "gpu_memory_utilization": "0.92",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None",
    "kv_cache_memory_bytes": "1073741824",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "float32",
    "num_cpu_blocks": "None",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None",
    "replayssm_buffer_len": "16",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "True",
}


def cache_config_labels(config: EngineConfig, *, version: Version, engine: int) -> dict[str, str]:
    """Return the labels that this release's engine states about its cache."""
    labels = dict(_LATE if version >= _POOL_IN_TOKENS else _EARLY)
    labels |= {
        "block_size": str(config.block_size),
        "enable_prefix_caching": str(config.enable_prefix_caching),
        "num_gpu_blocks": str(config.num_gpu_blocks),
        "num_gpu_blocks_override": str(config.num_gpu_blocks),
    }
    if version >= _ENGINE_LABEL:
        labels["engine"] = str(engine)
    if version >= _POOL_IN_TOKENS:
        pool_tokens = config.num_gpu_blocks * config.block_size
        labels["kv_cache_size_tokens"] = str(pool_tokens)
        labels["kv_cache_max_concurrency"] = str(pool_tokens / config.max_model_len)
    if version >= _EFFECTIVE_BLOCK:
        labels["cache_hit_alignment_tokens"] = "None"
        labels["effective_attention_block_size"] = str(config.block_size)
    return labels
